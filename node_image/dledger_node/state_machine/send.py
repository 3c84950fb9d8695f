"""Decide which chunks of its snapshots a member sends, and which snapshots it keeps for that.

This module does no IO: `install` reads and sends the bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.state_machine.restore import Log, agrees
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots

IN_USE_S: Final = 60.0
"""Time for which a snapshot is kept after a peer has asked for a chunk of it."""


@dataclass(slots=True, kw_only=True)
class SentSnapshot:
    """A snapshot that a peer is fetching, and the next chunk to send.

    `reading` is true from the request of a chunk until it is read; further requests are ignored.
    """

    peer_id: str
    meta: SnapshotMeta
    offset: int
    until_s: float
    reading: bool = True

    def chunk(self, self_id: str, data: bytes) -> SnapshotChunk:
        """Return the message with the bytes at the offset."""
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


class Sending:
    """The snapshots that one member sends, at most one to each peer."""

    def __init__(self, snapshots: HeldSnapshots, log: Log, *, now_s: Callable[[], float]) -> None:
        self._snapshots = snapshots
        self._log = log
        self._now_s = now_s
        self._sent_by_peer: dict[str, SentSnapshot] = {}

    def in_use(self) -> frozenset[int]:
        """Return the last indexes of the snapshots that peers are fetching: they must be kept."""
        now_s = self._now_s()
        all_sent = self._sent_by_peer.values()
        return frozenset(sent.meta.last_included_index for sent in all_sent if sent.until_s > now_s)

    def grant(self, request: SnapshotChunkRequest) -> SentSnapshot | None:
        """Return the requested chunk, or the first of the newest snapshot if that one is gone.

        Returns None if there is nothing to send now.
        """
        sent = self._sent_by_peer.get(request.sender)
        if sent is not None and sent.reading:
            return None
        good = self._good()
        asked = [meta for meta in good if meta.last_included_index == request.index]
        metas = asked or good[:1]
        if not metas:
            return None
        offset = request.offset if asked else 0
        if offset > metas[0].data_bytes:
            return None
        sent = SentSnapshot(
            peer_id=request.sender,
            meta=metas[0],
            offset=offset,
            until_s=self._now_s() + IN_USE_S,
        )
        self._sent_by_peer[request.sender] = sent
        return sent

    def _good(self) -> list[SnapshotMeta]:
        """Return the snapshots that agree with the log, newest first."""
        return [
            meta
            for meta in self._snapshots.newest_first
            if agrees(meta.last_included_index, meta.last_included_term, self._log)
        ]
