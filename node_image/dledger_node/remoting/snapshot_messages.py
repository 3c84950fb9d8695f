"""Messages that carry the bytes of a snapshot from one member to another.

The core decides when a log must begin again with a later entry (InstallSnapshotRequest). Before
that, the receiver requests the state of the removed entries, chunk by chunk. A snapshot covers only
committed entries, so it is valid in every later term, and these messages do not reach the core.
"""

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES_MAX: Final = 1 << 20
NEWEST: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunkRequest:
    """Ask for the snapshot's data from `offset` on. A member without a snapshot does not answer."""

    sender: str
    receiver: str
    index: int
    """The last index that the snapshot includes, or NEWEST. A member that no longer has that
    snapshot sends the first chunk of its newest.
    """
    offset: int

    def __post_init__(self) -> None:
        if self.index < NEWEST or self.offset < 0:
            raise ValueError(
                f"byte {self.offset} of the snapshot up to entry {self.index} cannot exist"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    """Some bytes of a snapshot, with the length and checksum of the whole."""

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
            raise ValueError(f"bytes {self.offset} to {end} of {self.data_bytes} cannot be a chunk")
        if not self.data and self.offset < self.data_bytes:
            raise ValueError("the chunk has no data, but the snapshot has more")
        if min(self.last_included_index, self.last_included_term) < 0:
            raise ValueError(
                f"a snapshot cannot end with entry {self.last_included_index} of term "
                f"{self.last_included_term}"
            )
        if not 0 <= self.data_crc32 < 1 << 32:
            raise ValueError(f"{self.data_crc32} is not a CRC-32")
