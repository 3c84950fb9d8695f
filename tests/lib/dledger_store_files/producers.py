"""A log with two producers, and the operations of a running member on it."""

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.log_store import LogStore


def register(store: LogStore, term: int = 1) -> int:
    """Register a producer; return its identity."""
    number = store.producers.table.next_number()
    return store.append_bodies([b""], term, [channel_of(number, 0)], disk.NOOP)[0]


def append(store: LogStore, producer: int, *sequences: int, term: int = 1) -> None:
    """Append these sequences of a producer in one batch."""
    channels = [store.producers.table.channel(producer, sequence) for sequence in sequences]
    bodies = [b"%d of %d" % (sequence, producer) for sequence in sequences]
    store.append_bodies(bodies, term, channels)


def mark_stable(store: LogStore, index: int) -> None:
    """Make the log durable and committed up to `index`, as a server does."""
    target = store.flush_target()
    store.flush(target)
    store.flushed(target)
    store.save_checkpoint(index)
    store.producers.table.mark_stable(index)


def found(store: LogStore, producer: int, last: int) -> list[int | Finding]:
    """Look up the sequences 1 to `last` of a producer."""
    return [store.producers.table.find(producer, sequence) for sequence in range(1, last + 1)]


def appended_twice(store: LogStore) -> tuple[int, int]:
    """Append as two producers, among ordinary entries, over several segments; return both."""
    store.append_bodies([bytes(900)] * 3, term=1)
    first = register(store)
    append(store, first, 1, 2, 3)
    store.append_bodies([bytes(900)] * 3, term=1)
    second = register(store)
    append(store, second, 1)
    append(store, first, 4, 6)
    append(store, first, 5)
    return first, second


EXPECTED = ([4, 5, 6, 12, 14, 13], [11])
"""The indexes of the sequences of both producers of `appended_twice`."""
