"""Which bytes of its snapshots a member sends to others, and which snapshots must stay meanwhile.

The rules, without IO: `installs` reads the bytes and sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.restore import Log, agrees
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta

LENT_S: Final = 60.0
"""A snapshot is kept for so long after a peer has asked for a part of it."""


@dataclass(slots=True, kw_only=True)
class Loan:
    """What a peer fetches from this member; `reading` from when a chunk is granted until it is
    read, and none other is granted meanwhile.
    """

    peer_id: str
    meta: SnapshotMeta
    offset: int
    until_s: float
    reading: bool = True

    def chunk(self, self_id: str, data: bytes) -> SnapshotChunk:
        """The bytes at the offset, as they are sent."""
        return SnapshotChunk(
            sender=self_id,
            receiver=self.peer_id,
            last_included_index=self.meta.last_included_index,
            last_included_term=self.meta.last_included_term,
            data_bytes=self.meta.data_bytes,
            data_crc32=self.meta.data_crc32,
            offset=self.offset,
            data=data,
        )


class Lending:
    """One member's loans, one for each peer."""

    def __init__(self, snapshots: HeldSnapshots, log: Log, *, now_s: Callable[[], float]) -> None:
        self._snapshots = snapshots
        self._log = log
        self._now_s = now_s
        self._loans: dict[str, Loan] = {}

    def lent(self) -> frozenset[int]:
        """The snapshots that others are fetching; they must stay."""
        now_s = self._now_s()
        loans = self._loans.values()
        return frozenset(loan.meta.last_included_index for loan in loans if loan.until_s > now_s)

    def grant(self, request: SnapshotChunkRequest) -> Loan | None:
        """The chunk that is asked for; the first of the newest snapshot if that is gone."""
        loan = self._loans.get(request.sender)
        if loan is not None and loan.reading:
            return None
        good = self._good()
        asked = [meta for meta in good if meta.last_included_index == request.index]
        metas = asked or good[:1]
        if not metas:
            return None
        offset = request.offset if asked else 0
        if offset > metas[0].data_bytes:
            return None
        loan = Loan(
            peer_id=request.sender,
            meta=metas[0],
            offset=offset,
            until_s=self._now_s() + LENT_S,
        )
        self._loans[request.sender] = loan
        return loan

    def _good(self) -> list[SnapshotMeta]:
        """Newest first; what the log contradicts, a member must not hand on."""
        return [
            meta
            for meta in self._snapshots.newest_first
            if agrees(meta.last_included_index, meta.last_included_term, self._log)
        ]
