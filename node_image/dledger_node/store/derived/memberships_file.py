"""The committed memberships on disk: the file `memberships`, beside the checkpoint.

    0 {"voters":["n0","n1","n2"],"learners":["n3"]}     index of the entry, then its body
    #crc32=0badcafe                                     of all lines before

The file holds the last membership entry that was removed from the front of the log, and those that
the log holds, up to its committed index. They are committed, so they apply to the log of every
member. The checkpoint names the last one, so a start can distinguish a lost or old file from one
that is not needed: unlike the table of producers, memberships cannot be rebuilt.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_formats.log.checksum import crc32
from dledger_node.errors import Damage, StoreDamagedError, StoreError
from dledger_node.raft.membership import MembershipEntry
from dledger_node.store.derived.membership_bodies import body_of, membership_of
from dledger_node.store.small_files.whole_file import replace_file, saving

FILE_NAME: Final = "memberships"
FILE_BYTES_MAX: Final = 64 << 20
"""Enough for half a million changes of a small group without retention."""
_CHECKSUM: Final = b"#crc32="


def save(folder: Path, entries: Sequence[MembershipEntry]) -> None:
    """Replace the file atomically and durably; blocks for two fsyncs.

    Raises StoreError if the file would become too large, and as `saving` does.
    """
    path = folder / FILE_NAME
    raw = encode(entries)
    if len(raw) > FILE_BYTES_MAX:
        raise StoreError(f"{path}: {len(entries)} memberships exceed {FILE_BYTES_MAX} bytes")
    with saving(path):
        replace_file(path, raw)


def load(folder: Path) -> tuple[MembershipEntry, ...]:
    """Read the file; no entries if it does not exist. Raises StoreDamagedError if it is damaged."""
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
            f"{path}: {error}. Nothing was changed. Only this file holds the membership before the "
            "log's first entry: replace the member",
            Damage.MEMBERSHIPS,
        ) from None


def encode(entries: Sequence[MembershipEntry]) -> bytes:
    """Encode the file."""
    lines = b"".join(b"%d %s\n" % (entry.index, body_of(entry.membership)) for entry in entries)
    return lines + b"%s%08x\n" % (_CHECKSUM, crc32(lines))


def decode(raw: bytes) -> tuple[MembershipEntry, ...]:
    """Decode the file. Raises ValueError if it is damaged."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"the file has more than {FILE_BYTES_MAX} bytes")
    lines, mark, checksum = raw.rpartition(_CHECKSUM)
    if not mark or checksum != b"%08x\n" % crc32(lines):
        raise ValueError("the checksum does not match")
    entries = []
    for line in lines.splitlines():
        index, _, body = line.partition(b" ")
        entries.append(MembershipEntry(int(index), membership_of(body)))
    indexes = [entry.index for entry in entries]
    if indexes != sorted(set(indexes)) or (indexes and indexes[0] < 0) or encode(entries) != raw:
        raise ValueError("the memberships are not in order")
    return tuple(entries)
