"""The memberships that are committed, on disk: `memberships`, beside the checkpoint.

    0 {"voters":["n0","n1","n2"],"learners":["n3"]}     since this entry; then its body
    #crc32=0badcafe                                     of all lines before

The last that was removed from the log's front, and those that the log holds, up to its committed
index. All are committed, so each is true of every member's log, whatever becomes of this one. The
checkpoint says which is the last, so a file that is lost or old is told from one that is not
needed: unlike a table of producers, this cannot be guessed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_formats.log.checksum import crc32
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.raft.membership import MembershipEntry
from dledger_node.store.derived.membership_bodies import body_of, membership_of
from dledger_node.store.segments.segment import NO_ROOM
from dledger_node.store.small_files.whole_file import replace_file

FILE_NAME: Final = "memberships"
FILE_BYTES_MAX: Final = 64 << 20
"""Half a million changes of a small group, without retention."""
_CHECKSUM: Final = b"#crc32="


def save(folder: Path, entries: Sequence[MembershipEntry]) -> None:
    """Replace the file as a whole, durably; blocks for two fsyncs.

    After a StoreError, and a StoreFullError on a full volume, the last one stands.
    """
    path = folder / FILE_NAME
    raw = encode(entries)
    if len(raw) > FILE_BYTES_MAX:
        raise StoreError(f"{path}: {len(entries)} memberships are more than it can hold")
    try:
        replace_file(path, raw)
    except OSError as error:
        kind = StoreFullError if error.errno in NO_ROOM else StoreError
        raise kind(f"{path}: it could not be saved: {error}") from error


def load(folder: Path) -> tuple[MembershipEntry, ...]:
    """Read the file; no entries when there is none. StoreDamagedError if it cannot be trusted."""
    path = folder / FILE_NAME
    try:
        with path.open("rb") as file:
            return decode(file.read(FILE_BYTES_MAX + 1))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreDamagedError(f"{path} cannot be read: {error}", Damage.UNREADABLE) from error
    except ValueError as error:
        raise StoreDamagedError(
            f"{path}: {error}. Nothing was changed. Who belonged to the group before this log "
            "begins is said nowhere else here: replace the member",
            Damage.MEMBERSHIPS,
        ) from None


def encode(entries: Sequence[MembershipEntry]) -> bytes:
    """The bytes of the file."""
    lines = b"".join(b"%d %s\n" % (entry.index, body_of(entry.membership)) for entry in entries)
    return lines + b"%s%08x\n" % (_CHECKSUM, crc32(lines))


def decode(raw: bytes) -> tuple[MembershipEntry, ...]:
    """Read them; ValueError when they cannot be trusted."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    lines, mark, checksum = raw.rpartition(_CHECKSUM)
    if not mark or checksum != b"%08x\n" % crc32(lines):
        raise ValueError("its checksum does not match")
    entries = []
    for line in lines.splitlines():
        index, _, body = line.partition(b" ")
        entries.append(MembershipEntry(int(index), membership_of(body)))
    indexes = [entry.index for entry in entries]
    if indexes != sorted(set(indexes)) or (indexes and indexes[0] < 0) or encode(entries) != raw:
        raise ValueError("its memberships are not in order")
    return tuple(entries)
