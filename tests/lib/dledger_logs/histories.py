"""Random histories of a log, reproducible by their seed."""

import random
import struct
from collections.abc import Sequence
from dataclasses import replace

from dledger_formats.log import disk, memberships
from dledger_logs.write import Entry, Shape

TERM_ENTRIES = 100


def history(count: int, *, seed: int = 1, body_bytes: tuple[int, int] = (5, 90)) -> list[Entry]:
    """Create entries: a new term every hundred, beginning with a NOOP; bodies of random length."""
    rng = random.Random(seed)
    return [
        Entry(term=1 + number // TERM_ENTRIES, body=b"", magic=disk.NOOP)
        if number % TERM_ENTRIES == 0
        else Entry(term=1 + number // TERM_ENTRIES, body=rng.randbytes(rng.randint(*body_bytes)))
        for number in range(count)
    ]


def register_history(count: int, *, seed: int = 1, keys: int = 40) -> list[Entry]:
    """Create entries that set registers, and some that set nothing, with terms as in `history`."""
    rng = random.Random(seed)
    return [
        replace(entry, body=struct.pack("<ii", rng.randrange(keys) - 7, rng.randrange(1 << 20)))
        if entry.magic == disk.NORMAL and rng.random() < 0.9
        else entry
        for entry in history(count, seed=seed)
    ]


def with_membership(
    entries: Sequence[Entry], index: int, voters: tuple[str, ...], learners: tuple[str, ...] = ()
) -> list[Entry]:
    """Return a history in which one entry is a membership entry."""
    changed = list(entries)
    body = memberships.encode(voters, learners)
    changed[index] = replace(
        changed[index], body=body, magic=disk.NOOP, channel=memberships.MEMBERSHIP_CHANNEL
    )
    return changed


def with_other_body(entries: Sequence[Entry], index: int) -> list[Entry]:
    """Return a history that differs in the body of one entry, and is as valid."""
    changed = list(entries)
    changed[index] = replace(changed[index], body=changed[index].body[::-1] + b"!")
    return changed


def with_term(entries: Sequence[Entry], index: int, term: int) -> list[Entry]:
    """Return a history in which one entry has another term."""
    changed = list(entries)
    changed[index] = replace(changed[index], term=term)
    return changed


def small_shape(segment_bytes: int = 4096) -> Shape:
    """Return a layout in which a few hundred entries fill several data and index files."""
    return Shape(segment_bytes=segment_bytes, index_segment_bytes=32 * 25)


def with_channel(entries: Sequence[Entry], index: int, channel: int) -> list[Entry]:
    """Return a history in which one entry has another channel."""
    changed = list(entries)
    changed[index] = replace(changed[index], channel=channel)
    return changed
