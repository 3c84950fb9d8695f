"""Messages to and from the peers, on the links that this member opens and those that it accepts."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from dledger_formats.settings import NodeSettings
from dledger_node.daemon_call import call_in_daemon
from dledger_node.errors import (
    LogsDifferError,
    RemoteProtocolError,
    StoreDamagedError,
    StoreError,
)
from dledger_node.limited_log import LineBudget
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import (
    AppendRequest,
    HeldByAllNotice,
    InstallSnapshotRequest,
    TakeLeadershipRequest,
)
from dledger_node.remoting import native
from dledger_node.remoting.link_owner import Entries, OnDiskError, Push
from dledger_node.remoting.links import Links
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.services.read_proofs import ReadProofs
from dledger_node.shell import pushes
from dledger_node.shell.divergence import Divergence
from dledger_node.shell.identity import GroupIdentity
from dledger_node.shell.loop import CoreLoop
from dledger_node.shell.room import LogRoom
from dledger_node.state_machine.keeper import State
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError
from dledger_node.volume.health import VolumeHealth
from dledger_node.volume.upkeep import Upkeep

logger = logging.getLogger(__name__)

HELD_MAX: Final = 256
HELD_BYTES_MAX: Final = 32 << 20
"""Bounds of the pushes that wait for the disk. The leader sends again what is dropped."""


class LinkOwner:
    """Serves the links that this member opens. Implements `remoting.link_owner.PeerLinkOwner`.

    `VolumeHealth` watches its reads of the disk.
    """

    what: Final = "a read for a peer"

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        *,
        incarnation: int,
        identity: GroupIdentity,
        turn: Callable[[Callable[[], None]], None],
        begin_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`incarnation` is the number that identifies this start of the process. `turn` gives the
        core an input and runs the resulting work. `begin_turn` is called before the work of a read.
        """
        self._settings = settings
        self._core = core
        self._store = store
        self._incarnation = incarnation
        self.identity = identity
        self.election_timeout_s = settings.election_timeout_ms / 1000
        self._turn, self._begin_turn = turn, begin_turn
        self._now_s = time.monotonic
        self._lines = LineBudget()
        self._fetching: dict[str, tuple[float, asyncio.Future[Entries | None]]] = {}
        """The reads of the disk that are under way, by peer, and when each began; the oldest first.
        """
        self._up: set[str] = set()
        """The peers to which a link is up."""
        self.when_lost: list[Callable[[str], None]] = []
        """Called with the id of a peer whenever the connection to it breaks."""

    def hello(self, peer_id: str) -> native.Hello:
        """Return the first message of a link to a peer."""
        return native.Hello(
            group=self._settings.group,
            sender_id=self._settings.self_id,
            receiver_id=peer_id,
            segment_size_bytes=self._settings.segment_size_bytes,
            incarnation=self._incarnation,
            protocol=native.OLDEST_PROTOCOL,
            newest_protocol=native.NEWEST_PROTOCOL,
            group_identity=self.identity.value,
        )

    def read_entries(self, push: Push, bytes_max: int) -> Entries | None:
        """Return stored bytes of a push, and the index of the last entry in them.

        Returns None if the push is out of date: this member no longer leads its term, or has
        removed the entries. Also returns None if entries are damaged. Raises OnDiskError.
        """
        if not self._is_current(push):
            return None
        tail = self._store.tail(push.first_index, push.last_index)
        if tail is not None and len(tail) <= bytes_max:
            return (tail,), push.last_index
        try:
            found = self._read(push, bytes_max, wait=False)
        except (StoreDamagedError, RangeMovedError):
            return None  # the core asks the follower again, after the entries are mended
        if found is None:
            raise OnDiskError
        return found

    def fetch(self, push: Push, bytes_max: int, then: Callable[[Entries | None], None]) -> None:
        """Read the first entries of a push in a thread, one for each peer.

        The thread is not one that reads for clients, so that no client delays a push.
        """
        if push.receiver in self._fetching:
            then(None)  # a read for its last connection is still under way; the leader tries again
            return
        read = partial(self._read, push, bytes_max, wait=True)
        fetching = asyncio.ensure_future(call_in_daemon("push", read))
        self._fetching[push.receiver] = self._now_s(), fetching
        fetching.add_done_callback(partial(self._fetched, push, then))

    @property
    def in_flight_s(self) -> float:
        """How long the oldest read under way has taken so far; 0 if there is none."""
        began_s, _ = next(iter(self._fetching.values()), (None, None))
        return 0.0 if began_s is None else self._now_s() - began_s

    def _fetched(
        self,
        push: Push,
        then: Callable[[Entries | None], None],
        fetching: "asyncio.Future[Entries | None]",
    ) -> None:
        self._begin_turn()
        del self._fetching[push.receiver]
        if fetching.cancelled():
            return  # the process ends
        found: Entries | None = None
        try:
            found = fetching.result()
        except (StoreDamagedError, RangeMovedError):
            pass  # the core asks the follower again, after the entries are mended
        finally:
            then(found if self._is_current(push) else None)

    def _is_current(self, push: Push) -> bool:
        """Return whether this member leads the push's term, and has not removed its entries."""
        leads = self._core.leads and self._core.term == push.term
        return leads and push.first_index >= self._store.begin_index

    def _read(self, push: Push, bytes_max: int, *, wait: bool) -> Entries | None:
        return self._store.range_to_push(push.first_index, push.last_index, bytes_max, wait=wait)

    def link_restored(self, peer_id: str) -> None:
        """Report to the core that a link is up."""
        # The peer may have closed the link because it was pushed damaged entries.
        self._store.distrust()
        self._up.add(peer_id)
        admitted = self._lines.admit(peer_id)
        if admitted is not None:
            logger.info("link to %s is up%s", peer_id, admitted)
        self._turn(lambda: self._core.link_restored(peer_id))

    def link_lost(self, peer_id: str) -> None:
        """Report to the core that a link is down."""
        self._turn(lambda: self._core.link_lost(peer_id))
        if peer_id in self._up:
            self._up.remove(peer_id)
            for listener in self.when_lost:
                listener(peer_id)


class PeerMessages:
    """Receives the messages of the links that peers open. Implements `service.PeerService`."""

    def __init__(
        self,
        links: Links,
        owner: LinkOwner,
        loop: CoreLoop,
        store: LogStore,
        health: VolumeHealth,
        room: LogRoom,
        state: State,
        upkeep: Upkeep,
        *,
        core: Raft,
        proofs: Callable[[], ReadProofs],
        fatal: asyncio.Future[None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`proofs` returns the proofs of reads, which are built later. `fatal` is done once this
        member must stop; `fail` completes it.
        """
        self._links = links
        self._owner = owner
        self._loop = loop
        self._store = store
        self._health = health
        self._room = room
        self._lines = LineBudget(asyncio.get_running_loop().time)
        self._held: list[pushes.Push] = []
        self._held_bytes = 0
        """Pushes that wait until the log takes entries again, and their bytes."""
        self._state = state
        self._upkeep = upkeep
        self._proofs = proofs
        self._divergence = Divergence(
            core,
            store,
            owner.identity,
            proofs,
            now_s=asyncio.get_running_loop().time,
            election_timeout_s=owner.election_timeout_s,
        )
        self._fatal = fatal
        self._fail = fail

    def hello(self, peer_id: str) -> native.Hello:
        """Return the first message of a link to a peer."""
        return self._owner.hello(peer_id)

    def call_when_link_lost(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the id of a peer whenever the connection to it breaks."""
        self._owner.when_lost.append(listener)

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Return why the sender must not open a link; None if it may."""
        refusal = native.refusal(hello, self._owner.hello(hello.sender_id), self._links)
        identity = self._owner.identity
        refusal = refusal or identity.refusal(hello.sender_id, hello.group_identity)
        if refusal is None:
            identity.hear(hello.sender_id, hello.group_identity)
            self._links.heard_hello(hello.sender_id, hello.incarnation)
            self.drop_held(hello.sender_id)
        return refusal

    def drop_held(self, peer_id: str) -> None:
        """Drop the held pushes of a peer's earlier links: nothing that it sent before its start may
        be taken after this member has answered it (`raft.recalling`).
        """
        held, self._held, self._held_bytes = self._held, [], 0
        for push in held:
            if push.sender != peer_id:
                self._hold(push)

    def receive(self, message: PeerMessage) -> None:
        """Pass a message to the component that handles it.

        The core gets a push only after its bytes are checked and have room on the disk.
        """
        if self._health.stalled or self._fatal.done():
            return  # the resulting work would wait for the disk, or contradict it
        if self._divergence.ignores(message):
            return
        match message:
            case HeldByAllNotice():
                self._upkeep.receive(message)
                return
            case SnapshotChunkRequest() | SnapshotChunk():
                self._state.receive(message)
                return
            case ReadIndexRequest() | ReadIndexResponse():
                self._proofs().receive(message)
                return
            case InstallSnapshotRequest() if self._state.lacks(message):
                return  # the leader tries again
            case TakeLeadershipRequest() if not self._health.may_campaign:
                return  # it could not write a leader's first entry
            case AppendRequest() | InstallSnapshotRequest():
                checked = self._checked(message)
                if checked is None:
                    self._hold(message)
                    return
                message = checked
        self._loop.step(message)

    def go_on(self) -> None:
        """Take the pushes that waited until the log takes entries again."""
        held, self._held, self._held_bytes = self._held, [], 0
        if self._health.full:
            return  # there was no room; the leader tries again
        for push in held:
            try:
                self.receive(push)
            except RemoteProtocolError as error:
                admitted = self._lines.admit("dropped")
                if admitted is not None:
                    logger.warning("a push of %s is dropped: %s%s", push.sender, error, admitted)

    def _hold(self, push: pushes.Push) -> None:
        """Keep a push if it only waits for the disk; otherwise the leader tries again."""
        if not self._room.is_busy:
            return
        assert isinstance(push.entries, memoryview)
        held_bytes = self._held_bytes + len(push.entries)
        if len(self._held) < HELD_MAX and held_bytes <= HELD_BYTES_MAX:
            self._held.append(push)
            self._held_bytes = held_bytes

    def _checked(self, push: pushes.Push) -> pushes.Push | None:
        """Return a push that the log can take now; None if it cannot."""
        if self._room.is_busy:
            return None
        try:
            return pushes.checked(push, self._store, self._room)
        except LogsDifferError as error:
            assert isinstance(push, AppendRequest)
            if self._divergence.examines(push, str(error)):
                return None
            raise
        except StoreDamagedError:
            return None  # the leader tries again; the entry before the push may be mended by then
        except StoreError as error:
            self._fail(error)
            return None
