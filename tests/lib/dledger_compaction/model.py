"""A naive model of compaction over lists, and random histories of keys and values."""

import random
from collections.abc import Sequence
from dataclasses import replace

from dledger_formats.log import disk, memberships
from dledger_logs.write import Entry


def naive(
    entries: Sequence[Entry], clean_index: int, tombstone_entries: int, first_index: int = 0
) -> list[Entry]:
    """Return the entries of the archive of a `kv` log, which begins with entry `first_index`.

    Every pair of entries is compared, so nothing depends on an order of work.
    """
    compacted = []
    for index, entry in enumerate(entries, first_index):
        key, separator, value = entry.body.partition(b"=")
        later = [
            other
            for at, other in enumerate(entries, first_index)
            if index < at <= clean_index and other.magic == disk.NORMAL
        ]
        goes = (
            entry.magic == disk.NORMAL
            and bool(separator)
            and index <= clean_index
            and (
                any(other.body.startswith(key + b"=") for other in later)
                or (not value and clean_index - index >= tombstone_entries)
            )
        )
        compacted.append(replace(entry, body=b"", magic=disk.NOOP, channel=0) if goes else entry)
    return compacted


def key_history(count: int, seed: int, *, keys: int = 12) -> list[Entry]:
    """Create a history: values and tombstones of a few keys, entries without a key, no-ops,
    memberships and a producer's channels, in rising terms.
    """
    rng, term, entries = random.Random(seed), 1, list[Entry]()
    while len(entries) < count:
        kind = rng.random()
        if kind < 0.03:
            term += 1
            entries.append(Entry(term=term, body=b"", magic=disk.NOOP))
        elif kind < 0.05:
            body = memberships.encode(("n0", "n1", "n2"), ())
            channel = memberships.MEMBERSHIP_CHANNEL
            entries.append(Entry(term=term, body=body, magic=disk.NOOP, channel=channel))
        elif kind < 0.13:
            entries.append(
                Entry(term=term, body=rng.randbytes(rng.randint(0, 60)).replace(b"=", b""))
            )
        else:
            key = b"k%d" % rng.randrange(keys)
            is_tombstone = rng.random() < 0.2
            value = b"" if is_tombstone else rng.randbytes(rng.randint(1, 70))
            channel = 1 << 16 | len(entries) & 0xFFFF if rng.random() < 0.3 else 0
            entries.append(Entry(term=term, body=key + b"=" + value, channel=channel))
    return entries
