"""How the bytes of a snapshot go from one member to another: the shells' business alone.

The core says when a log must begin anew (InstallSnapshotRequest). What the removed entries added up
to, the receiver asks for beforehand, a chunk at a time. A snapshot holds committed entries alone,
so it is as good in every later term, and the core never hears of these.
"""

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES_MAX: Final = 1 << 20
NEWEST: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkRequest:
    """Send the snapshot's data from `offset` on; a receiver that has none sends nothing."""

    sender: str
    receiver: str
    index: int
    """Last index that the snapshot includes; NEWEST for any. Who has it no more sends the first
    chunk of another.
    """
    offset: int

    def __post_init__(self) -> None:
        if self.index < NEWEST or self.offset < 0:
            raise ValueError(f"byte {self.offset} of the snapshot {self.index} cannot be asked for")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """Some bytes of a snapshot, and what all of them must be together."""

    sender: str
    receiver: str
    last_included_index: int
    last_included_term: int
    data_bytes: int
    data_crc32: int
    offset: int
    data: bytes | memoryview

    def __post_init__(self) -> None:
        end = self.offset + len(self.data)
        if not 0 <= self.offset <= end <= self.data_bytes or len(self.data) > CHUNK_BYTES_MAX:
            raise ValueError(f"bytes {self.offset} to {end} of {self.data_bytes} cannot be")
        if not self.data and self.offset < self.data_bytes:
            raise ValueError("a chunk without data")
        if min(self.last_included_index, self.last_included_term) < 0:
            raise ValueError(f"a snapshot up to {self.last_included_index} cannot be")
        if not 0 <= self.data_crc32 < 1 << 32:
            raise ValueError(f"{self.data_crc32} is no CRC-32")
