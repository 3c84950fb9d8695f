"""Faults of a member's log: wrong bytes, and other entries under right checksums."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dledger_formats.log import disk, memberships
from dledger_logs import damage
from dledger_logs.layout import Log
from dledger_logs.write import Entry

VOTERS: Final = ("n0", "n1", "n2")
UNIT_FIELDS: Final = {"magic": 3, "pos": 11, "size": 15, "index": 23, "term": 31}
"""The lowest byte of each field of an index unit."""

Places: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault is to be planted."""

    member: str
    index: int
    rng: random.Random


Spoil: TypeAlias = Callable[[Log, Place], Places]
"""Damages the files of a member; returns the first and the last entry that are wrong."""
Change: TypeAlias = Callable[[Entry, random.Random], Entry]
"""Returns the entry that one member has instead, with right checksums."""


def _header(field: str) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        size = damage.HEADER_FIELDS[field][1]
        damage.flip_header(log, place.index, field, place.rng.randrange(8 * size))
        return place.index, place.index

    return spoil


def _unit(field: str) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        damage.flip_unit(log, place.index, UNIT_FIELDS[field], 1 << place.rng.randrange(8))
        return place.index, place.index

    return spoil


def _body(where: Callable[[int, random.Random], int]) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        size = log.place(place.index).size - disk.ENTRY_HEADER_SIZE
        at = where(size, place.rng)
        damage.flip_body(log, place.index, at, 1 << place.rng.randrange(8))
        return place.index, place.index

    return spoil


def _zeroed(entries: int, *, skip: bool = False) -> Spoil:
    def spoil(log: Log, place: Place) -> Places:
        held = log.places_in(log.place(place.index).segment)
        last = min(held[-1].index, place.index + entries - 1)
        size = log.place(place.index).size
        damage.zero(log, place.index, last, skip=place.rng.randrange(1, size - 4) if skip else 0)
        return place.index, last

    return spoil


def _cut(log: Log, place: Place) -> Places:
    damage.truncate(log, place.index)
    return place.index, log.places_in(log.place(place.index).segment)[-1].index


def _overwritten(log: Log, place: Place) -> Places:
    """Write the bytes of another entry, with its own right checksums, over this one."""
    other = place.index - 1
    at, raw = log.place(place.index), log.entry_bytes(other)
    damage.overwrite(log.data_path(at.segment), at.offset, raw[: at.size])
    return place.index, place.index


def _noise(log: Log, place: Place) -> Places:
    at = log.place(place.index)
    damage.overwrite(log.data_path(at.segment), at.offset, place.rng.randbytes(at.size))
    return place.index, place.index


def _without_body_crc(log: Log, place: Place) -> Places:
    at = log.place(place.index)
    start = at.offset + damage.HEADER_FIELDS["body_crc"][0]
    damage.overwrite(log.data_path(at.segment), start, bytes(4))
    return place.index, place.index


SPOILS: Final[Mapping[str, Spoil]] = {
    **{f"a bit of {field} in a header": _header(field) for field in damage.HEADER_FIELDS},
    **{f"a bit of {field} in an index unit": _unit(field) for field in UNIT_FIELDS},
    "a bit of a body's first byte": _body(lambda size, _: 0),
    "a bit of a body's last byte": _body(lambda size, _: size - 1),
    "a bit within a body": _body(lambda size, rng: rng.randrange(size)),
    "an entry of zeros": _zeroed(1),
    "entries of zeros": _zeroed(5),
    "zeros from the middle of an entry": _zeroed(1, skip=True),
    "a file that was cut short": _cut,
    "an entry over another": _overwritten,
    "noise": _noise,
    "a checksum of zero": _without_body_crc,
}

CHANGES: Final[Mapping[str, Change]] = {
    "another body": lambda entry, rng: replace(entry, body=rng.randbytes(len(entry.body))),
    "a longer body": lambda entry, _: replace(entry, body=entry.body + b"!"),
    "a shorter body": lambda entry, _: replace(entry, body=entry.body[:-1]),
    "an empty body": lambda entry, _: replace(entry, body=b""),
    "another channel": lambda entry, _: replace(entry, channel=entry.channel ^ 5),
    "a no-op instead": lambda entry, _: replace(entry, body=b"", magic=disk.NOOP),
    "a no-op with a body": lambda entry, _: replace(entry, magic=disk.NOOP),
    "a membership that nobody made": lambda entry, _: replace(
        entry, magic=disk.NOOP, channel=memberships.MEMBERSHIP_CHANNEL,
        body=memberships.encode(VOTERS, ()),
    ),
    "a membership that cannot be read": lambda entry, _: replace(
        entry, magic=disk.NOOP, channel=memberships.MEMBERSHIP_CHANNEL
    ),
    "a magic that nobody knows": lambda entry, _: replace(entry, magic=disk.NORMAL + 77),
    "no checksum": lambda entry, _: replace(entry, is_covered=False),
    "an earlier term": lambda entry, _: replace(entry, term=entry.term - 1),
    "a later term": lambda entry, _: replace(entry, term=entry.term + 1),
}  # fmt: skip


WITHOUT_BODY: Final = frozenset(
    {
        *(f"a bit of {field} in a header" for field in damage.HEADER_FIELDS),
        *(f"a bit of {field} in an index unit" for field in UNIT_FIELDS),
        "an entry of zeros", "entries of zeros", "a file that was cut short", "noise",
    }
)  # fmt: skip
"""The kinds of faults that an entry without a body can have."""


def fits(kind: str, index: int, entry: Entry) -> bool:
    """Return whether an entry can have a fault of this kind."""
    if kind in WITHOUT_BODY:
        return True
    return index > 0 and entry.magic == disk.NORMAL and len(entry.body) > 4 and entry.channel == 0
