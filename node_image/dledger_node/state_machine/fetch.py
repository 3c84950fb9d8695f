"""Decide which chunks of a snapshot a member requests, from which peer, and when.

This module does no IO: `install` writes the bytes and reports when that is done. A member that
lacks entries which its leader has removed needs a snapshot before it can take the leader's push.
Such a push begins the fetch. If an answer is lost, a later push asks for the same chunk again. From
a new leader, the member continues the same snapshot, or begins another one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.snapshot_messages import NEWEST, SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.restore import Log, agrees
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots

PAUSE_DOUBLINGS_MAX: Final = 6
"""A snapshot that finds no room is asked for again after the usual pause, then after twice as long,
and so on, until the pause has doubled this many times.
"""


@dataclass(slots=True, kw_only=True)
class Fetch:
    """A snapshot that is being fetched. `asked_at_s` is the time of the last request."""

    meta: SnapshotMeta | None = None
    """The snapshot's metadata; None until the first chunk says which snapshot it is."""
    offset: int = 0
    """Number of bytes that are written."""
    sender: str = ""
    least_index: int = -1
    """The snapshot must include all entries up to this index."""
    asked_at_s: float = float("-inf")
    working: bool = False
    """Whether a chunk is being written; until that is done, other chunks are ignored."""
    no_room_count: int = 0
    """Number of times that the volume had no room for the snapshot."""
    missing_room_bytes: int = 0
    """Size of the snapshot for which there was no room; 0 if none has been refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A chunk to write now at `offset`. The first chunk of a snapshot replaces older data."""

    fetch: Fetch
    meta: SnapshotMeta
    offset: int
    data: bytes | memoryview
    begins: bool


class Fetching:
    """One member's fetch, if there is one. After `take`, the caller must call `leave`."""

    def __init__(
        self,
        self_id: str,
        snapshots: HeldSnapshots,
        log: Log,
        *,
        ask_again_s: float,
        now_s: Callable[[], float],
        send: Callable[[SnapshotChunkRequest], None],
    ) -> None:
        self._self_id = self_id
        self._snapshots = snapshots
        self._log = log
        self._ask_again_s = ask_again_s
        self._now_s = now_s
        self._send = send
        self._fetch: Fetch | None = None
        """Set by a push that cannot be taken without a snapshot."""

    @property
    def awaited(self) -> Fetch | None:
        """The fetch that this member needs before it can continue; None if there is none."""
        fetch = self._fetch
        if fetch is None or self._log.end_index > fetch.least_index:
            return None  # the log has received those entries from another leader
        return fetch

    @property
    def missing_room_bytes(self) -> int:
        """Size of the awaited snapshot for which the volume had no room; 0 if there is none, or
        while the snapshot is being fetched again.
        """
        fetch = self.awaited
        return fetch.missing_room_bytes if fetch is not None and fetch.meta is None else 0

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Return whether this member lacks the snapshot for the log that the leader offers.

        If so, the push must not reach the core, and the snapshot is asked for.
        """
        held = self._log.begin_index <= push.first_index <= self._log.end_index
        if held and agrees(push.first_index, push.entries_term, self._log):
            return False  # the log need not be replaced
        if self._snapshots.newest_index >= push.first_index - 1:
            self._fetch = None
            return False
        fetch = self._fetch or Fetch()
        self._fetch = fetch
        late = self._now_s() - fetch.asked_at_s >= self._pause_s(fetch)
        fetch.least_index = push.first_index - 1
        if not fetch.working and (late or fetch.sender != push.sender):
            fetch.sender = push.sender
            self._ask(fetch)
        return True

    def take(self, chunk: SnapshotChunk) -> Part | None:
        """Return what to write, if the chunk continues the fetch or begins a suitable snapshot."""
        fetch = self._fetch
        if fetch is None or fetch.working or chunk.sender != fetch.sender:
            return None
        meta = meta_of(chunk)
        begins = meta != fetch.meta
        if begins:
            fetch.meta, fetch.offset = None, 0
            if chunk.offset or meta.last_included_index < fetch.least_index:
                return None  # the next request asks for any snapshot
        elif chunk.offset != fetch.offset:
            return None  # the second answer to a repeated request
        fetch.meta = meta
        fetch.working = True
        return Part(fetch=fetch, meta=meta, offset=fetch.offset, data=chunk.data, begins=begins)

    def written(self, part: Part) -> bool:
        """Request the chunk after a written part. Return True if that part was the last one."""
        fetch = part.fetch
        fetch.offset += len(part.data)
        if fetch.offset < part.meta.data_bytes:
            self._ask(fetch)
            return False
        return True

    def adopted(self, part: Part) -> None:
        """Note that the snapshot with this last part is durable, and end the fetch."""
        if self._fetch is part.fetch:
            self._fetch = None

    def restart(self, part: Part) -> None:
        """Fetch the snapshot again from its first byte, after the usual pause."""
        part.fetch.meta, part.fetch.offset = None, 0
        part.fetch.asked_at_s = self._now_s()

    def found_no_room(self, part: Part) -> None:
        """Fetch the snapshot again from its first byte, after a pause that grows each time."""
        self.restart(part)
        part.fetch.missing_room_bytes = part.meta.data_bytes
        part.fetch.no_room_count += 1

    def leave(self, part: Part) -> None:
        """Note that the part has been handled, so that further chunks can be taken."""
        part.fetch.working = False

    def _pause_s(self, fetch: Fetch) -> float:
        """Return how long to wait for an answer, or for room, before the next request."""
        if fetch.meta is not None:
            return self._ask_again_s
        return self._ask_again_s * (1 << min(PAUSE_DOUBLINGS_MAX, fetch.no_room_count))

    def _ask(self, fetch: Fetch) -> None:
        fetch.asked_at_s = self._now_s()
        self._send(
            SnapshotChunkRequest(
                sender=self._self_id,
                receiver=fetch.sender,
                index=fetch.meta.last_included_index if fetch.meta else NEWEST,
                offset=fetch.offset,
            )
        )


def meta_of(chunk: SnapshotChunk) -> SnapshotMeta:
    """Return the metadata of the snapshot to which a chunk belongs."""
    return SnapshotMeta(
        last_included_index=chunk.last_included_index,
        last_included_term=chunk.last_included_term,
        data_bytes=chunk.data_bytes,
        data_crc32=chunk.data_crc32,
    )
