"""A simulated log as the files that a real member would have, rotten bytes included.

Every member stores an entry at the same position, so their files differ only in rotten bytes and in
length.
"""

import random
from pathlib import Path

from dledger_formats.log import disk as layout
from dledger_logs.layout import Log, Place
from dledger_logs.write import Entry as StoredEntry
from dledger_logs.write import Shape, write_log
from dledger_sim.group.disk import Entry, SimDisk

SHAPE = Shape(segment_bytes=512, index_segment_bytes=32 * 20)
"""About six entries a segment, so that rot and mending cross segments."""
_BODY_BYTES = 8
_PADDING = 8


def write_files(disk: SimDisk, root: Path, member_id: str) -> Log:
    """Write the durable log of a disk, and let its rotten entries rot; the folder must not exist.

    Each call rots the same bytes of a member, and different ones on different members.
    """
    log = write_log(root, [_stored(at, one) for at, one in enumerate(disk.durable)], SHAPE)
    for index in disk.rotten:
        _rot(log, index, random.Random(f"{member_id} {index}"))
    return log


def wrong_entries(disk: SimDisk, root: Path, log: Log) -> list[int]:
    """Return the indexes of the entries whose bytes in `log` are not those that were written."""
    sound = write_log(root, [_stored(at, one) for at, one in enumerate(disk.durable)], SHAPE)
    return [at for at in range(len(disk.durable)) if log.entry_bytes(at) != sound.entry_bytes(at)]


def _stored(index: int, entry: Entry) -> StoredEntry:
    body = entry.body.to_bytes(_BODY_BYTES, signed=True)
    return StoredEntry(term=entry.term, body=body + bytes(_PADDING * (index % 4)))


def _rot(log: Log, index: int, rng: random.Random) -> None:
    """Flip a bit of an entry, or lose the entry or the end of its segment's block."""
    place = log.place(index)
    path = log.data_path(place.segment)
    raw = bytearray(path.read_bytes())
    kind = rng.random()
    if kind < 0.4:
        _flip(raw, place, rng.randrange(layout.ENTRY_HEADER_SIZE), rng)
    elif kind < 0.7:
        _flip(raw, place, rng.randrange(layout.ENTRY_HEADER_SIZE, place.size), rng)
    else:
        raw[place.offset : place.offset + place.size] = bytes(place.size)
    path.write_bytes(raw)


def _flip(raw: bytearray, place: Place, at: int, rng: random.Random) -> None:
    raw[place.offset + at] ^= 1 << rng.randrange(8)
