"""What a member fetches that lacks what was removed from the log: which bytes, of whom, and when.

The rules, without IO: `installs` writes the bytes and says when that is done. A push that cannot be
taken before the snapshot is here asks for it, and asks again when an answer is lost, from where it
stopped. Another leader goes on with the same snapshot, or begins with its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.snapshot_messages import NEWEST, SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.restore import Log, agrees
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta


@dataclass(slots=True, kw_only=True)
class Fetch:
    """A snapshot that comes in; `asked_at_s` is when the chunk was asked for that is awaited."""

    meta: SnapshotMeta | None = None
    """None until the first chunk tells which snapshot it is."""
    offset: int = 0
    """What is written so far."""
    sender: str = ""
    least_index: int = -1
    """What the snapshot must include."""
    asked_at_s: float = float("-inf")
    working: bool = False
    """A chunk is being written; no other is taken meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A chunk to be written now at `offset`; the first of a snapshot replaces what there is."""

    fetch: Fetch
    meta: SnapshotMeta
    offset: int
    data: bytes | memoryview
    begins: bool


class Fetching:
    """One member's fetch, if there is one. Whoever takes a Part ends with `leave`."""

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
        """There from a push that cannot be taken until the snapshot is here."""

    @property
    def awaited(self) -> Fetch | None:
        """The fetch that this member cannot do without."""
        fetch = self._fetch
        if fetch is None or self._log.end_index > fetch.least_index:
            return None  # or another leader has led the log there
        return fetch

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Whether this member has no snapshot yet for the log that the leader offers.

        If so, the push must not reach the core; the snapshot is asked for.
        """
        held = self._log.begin_index <= push.first_index <= self._log.end_index
        if held and agrees(push.first_index, push.entries_term, self._log):
            return False  # the log need not begin anew
        if self._snapshots.newest_index >= push.first_index - 1:
            self._fetch = None
            return False
        fetch = self._fetch or Fetch()
        self._fetch = fetch
        late = self._now_s() - fetch.asked_at_s >= self._ask_again_s
        fetch.least_index = push.first_index - 1
        if not fetch.working and (late or fetch.sender != push.sender):
            fetch.sender = push.sender
            self._ask(fetch)
        return True

    def take(self, chunk: SnapshotChunk) -> Part | None:
        """What to write, if the chunk follows what there is, or begins a snapshot that will do."""
        fetch = self._fetch
        if fetch is None or fetch.working or chunk.sender != fetch.sender:
            return None
        meta = meta_of(chunk)
        begins = meta != fetch.meta
        if begins:
            fetch.meta, fetch.offset = None, 0
            if chunk.offset or meta.last_included_index < fetch.least_index:
                return None  # any other is asked for next
        elif chunk.offset != fetch.offset:
            return None  # an answer to what was asked twice
        fetch.meta = meta
        fetch.working = True
        return Part(fetch=fetch, meta=meta, offset=fetch.offset, data=chunk.data, begins=begins)

    def written(self, part: Part) -> bool:
        """Ask for what follows a part that is written; True when nothing does: all is here."""
        fetch = part.fetch
        fetch.offset += len(part.data)
        if fetch.offset < part.meta.data_bytes:
            self._ask(fetch)
            return False
        return True

    def adopted(self, part: Part) -> None:
        """The snapshot of which this is the last part is this member's own, durably."""
        if self._fetch is part.fetch:
            self._fetch = None

    def begin_anew(self, part: Part) -> None:
        """Drop what came in. It is asked for again in its time, or there would be no pause."""
        part.fetch.meta, part.fetch.offset = None, 0
        part.fetch.asked_at_s = self._now_s()

    def leave(self, part: Part) -> None:
        """Take others from now on."""
        part.fetch.working = False

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
    """Which snapshot a chunk is of."""
    return SnapshotMeta(
        last_included_index=chunk.last_included_index,
        last_included_term=chunk.last_included_term,
        data_bytes=chunk.data_bytes,
        data_crc32=chunk.data_crc32,
    )
