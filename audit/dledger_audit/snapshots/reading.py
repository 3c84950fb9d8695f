"""Read one snapshot of one member, byte by byte, as Spark's workers do.

A manifest lists what the member believes that it has. Here both checksums are computed from the
bytes, and the log's entry at the snapshot's last index is looked up.
"""

import enum
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.served_files import SNAPSHOT_DATA, SNAPSHOT_META, snapshot_file
from dledger_formats.log import snapshot_meta
from dledger_formats.log.checksum import crc32
from pyspark_dledger.copies import Copy
from pyspark_dledger.files import DiskError, GoneError, ReadError
from pyspark_dledger.intact import NoIntactCopyError, Reader
from pyspark_dledger.log_view import open_copy
from pyspark_dledger.ranges import IndexRange

WINDOW_BYTES: Final = 8 << 20
REASON_LENGTH_MAX: Final = 160
HEAD_BYTES: Final = 64

SNAPSHOT_SCHEMA: Final = pa.schema(
    [
        ("member", pa.string()),
        ("index", pa.int64()),
        ("term", pa.int64()),
        ("data_bytes", pa.int64()),
        ("data_crc32", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("digest", pa.binary()),
        ("head", pa.binary()),
        ("log_term", pa.int64()),
    ]
)
FOLLOWS_MAX: Final = 3
"""How often the newest snapshot is tried in place of one that is gone."""


class Outcome(enum.StrEnum):
    """The result of reading a snapshot."""

    WHOLE = "Whole"
    """Both checksums match, and the member's manifest describes the same snapshot."""
    DAMAGED = "Damaged"
    GONE = "Gone"
    """The member has no such file: it removed the snapshot, or its release serves none."""
    UNREAD = "Unread"
    """The member did not answer."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A snapshot that a member lists."""

    member: str
    held: HeldSnapshot

    @property
    def index(self) -> int:
        """The last entry that it includes."""
        return self.held.last_included_index


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """What was read of a snapshot."""

    listed: Listed
    outcome: Outcome
    reason: str = ""
    digest: bytes = b""
    """SHA-256 of the data, if it is whole."""
    head: bytes = b""
    """The first bytes of the data, which show what kind of state it is."""
    log_term: int = -1
    """The term of the last included entry in the log; -1 if no member's log has it intact."""


class ServedFiles(Protocol):
    """The small files and snapshots that a member serves."""

    def read_file(self, name: str, start: int, end: int) -> bytes | bytearray:
        """Return the bytes [start, end), or fewer if the file ends before `end`.

        Raises ReadError.
        """
        ...


def read_newest(
    files: ServedFiles, listed: Listed, newest: Callable[[], HeldSnapshot | None]
) -> SnapshotRead:
    """Read a snapshot, or the newest one if it is gone; `newest` asks the member for that.

    A busy member that keeps one snapshot replaces it every second.
    """
    read = read_snapshot(files, listed)
    for _ in range(FOLLOWS_MAX):
        if read.outcome is not Outcome.GONE:
            break
        held = newest()
        if held is None or held.last_included_index <= read.listed.index:
            break
        read = read_snapshot(files, Listed(listed.member, held))
    return read


def read_snapshot(files: ServedFiles, listed: Listed) -> SnapshotRead:
    """Read a snapshot and compute its checksums."""
    try:
        digest, head = _whole(files, listed)
    except GoneError as error:
        return SnapshotRead(listed, Outcome.GONE, _short(error))
    except (DiskError, ValueError) as error:
        return SnapshotRead(listed, Outcome.DAMAGED, _short(error))
    except ReadError as error:
        return SnapshotRead(listed, Outcome.UNREAD, _short(error))
    return SnapshotRead(listed, Outcome.WHOLE, digest=digest, head=head)


def log_term(copies: Sequence[Copy], index: int) -> int:
    """Return the term of an entry; -1 if no copy has it intact."""
    holding = [copy for copy in copies if copy.first_index <= index <= copy.committed_index]
    if not holding:
        return -1
    range_ = IndexRange(first=index, last=index)
    with Reader(open_copy=open_copy) as reader:
        try:
            for found in reader.read([copy.part(range_) for copy in holding], index, index):
                return int(found.entries.headers["term"][found.start])
        except NoIntactCopyError:
            return -1
    return -1


def row_of(read: SnapshotRead, term: int) -> pa.RecordBatch:
    """Return a row of SNAPSHOT_SCHEMA."""
    held = read.listed.held
    row = {
        "member": read.listed.member,
        "index": held.last_included_index,
        "term": held.last_included_term,
        "data_bytes": held.data_bytes,
        "data_crc32": held.data_crc32,
        "outcome": read.outcome.value,
        "reason": read.reason,
        "digest": read.digest,
        "head": read.head,
        "log_term": term,
    }
    return pa.RecordBatch.from_pylist([row], schema=SNAPSHOT_SCHEMA)


def reads_of(rows: pa.Table) -> list[SnapshotRead]:
    """Convert rows of SNAPSHOT_SCHEMA."""
    return [
        SnapshotRead(
            Listed(
                row["member"],
                HeldSnapshot(
                    last_included_index=row["index"],
                    last_included_term=row["term"],
                    data_bytes=row["data_bytes"],
                    data_crc32=row["data_crc32"],
                ),
            ),
            Outcome(row["outcome"]),
            row["reason"],
            row["digest"],
            row["head"],
            row["log_term"],
        )
        for row in rows.to_pylist()
    ]


def _whole(files: ServedFiles, listed: Listed) -> tuple[bytes, bytes]:
    """Return digest and head of a snapshot's data. Raises ReadError, or ValueError for damage."""
    held = listed.held
    raw = files.read_file(
        snapshot_file(listed.index, SNAPSHOT_META), 0, snapshot_meta.META_BYTES_MAX + 1
    )
    try:
        meta = snapshot_meta.decode(bytes(raw))
    except ValueError as error:
        raise ValueError(f"{SNAPSHOT_META}: {error}") from error
    for name, found, expected in (
        ("last index", meta.last_included_index, held.last_included_index),
        ("term", meta.last_included_term, held.last_included_term),
        ("size", meta.data_bytes, held.data_bytes),
        ("CRC-32", meta.data_crc32, held.data_crc32),
    ):
        if found != expected:
            raise ValueError(f"{SNAPSHOT_META} says {name} {found}, and the member {expected}")
    return _data(files, listed)


def _data(files: ServedFiles, listed: Listed) -> tuple[bytes, bytes]:
    size_bytes = listed.held.data_bytes
    digest, head, checksum, at = hashlib.sha256(), b"", 0, 0
    for raw in data_of(files, listed):
        digest.update(raw)
        head = head or bytes(raw[:HEAD_BYTES])
        checksum = crc32(raw, checksum)
        at += len(raw)
    if at != size_bytes:
        has = "more" if at > size_bytes else f"{at}"
        raise ValueError(f"{SNAPSHOT_DATA} has {has} bytes instead of {size_bytes}")
    if checksum != listed.held.data_crc32:
        raise ValueError(f"the CRC-32 of {SNAPSHOT_DATA} is {checksum}, not what its meta says")
    return digest.digest(), head


def data_of(files: ServedFiles, listed: Listed) -> Iterator[bytes | bytearray]:
    """Yield the data of a snapshot, and one byte more if there is more. Raises ReadError."""
    name, at = snapshot_file(listed.index, SNAPSHOT_DATA), 0
    while at <= listed.held.data_bytes:
        raw = files.read_file(name, at, min(listed.held.data_bytes + 1, at + WINDOW_BYTES))
        if not raw:
            return
        yield raw
        at += len(raw)


def _short(error: Exception) -> str:
    return str(error)[:REASON_LENGTH_MAX]
