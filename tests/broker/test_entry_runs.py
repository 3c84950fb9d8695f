"""Entries of neighboring units are read together, and are the same as if read one by one."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.queues.entry_runs import GAP_BYTES_MAX, RUN_BYTES_MAX, EntryRuns
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq.consume_queue import Unit

SEGMENT_BYTES = 40_000
LOG = bytes(at % 251 for at in range(3 * SEGMENT_BYTES))
MESSAGE_BYTES = 1024


class Reads:
    """A log of three segments, and what was read of it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def stored_at(self, pos: int, size: int) -> bytes:
        if not 0 <= pos < len(LOG):
            raise LookupError(f"no segment holds the byte {pos}")
        self.sizes.append(size)
        segment_end = pos - pos % SEGMENT_BYTES + SEGMENT_BYTES
        return LOG[pos : min(pos + size, segment_end)]


def units_at(positions: list[int], size: int = MESSAGE_BYTES) -> list[Unit]:
    return [Unit(pos + ENTRY_HEADER_SIZE, size, 0) for pos in positions]


def read(units: list[Unit], reads: Reads) -> list[bytes | None]:
    """Return the bytes of each entry; None for one that the log does not have."""
    runs, found = EntryRuns(reads.stored_at, units), list[bytes | None]()
    for number in range(len(units)):
        try:
            source, begin, end = runs.entry(number)
        except LookupError:
            found.append(None)
        else:
            found.append(source[begin:end])
    return found


def test_the_messages_of_one_of_eight_queues_are_read_at_once() -> None:
    reads = Reads()
    units = units_at([number * 8 * 1072 for number in range(4)])

    assert None not in read(units, reads)
    assert len(reads.sizes) == 1


def test_distant_messages_are_read_one_by_one() -> None:
    reads = Reads()
    step = ENTRY_HEADER_SIZE + MESSAGE_BYTES + GAP_BYTES_MAX + 1
    read(units_at([number * step for number in range(4)]), reads)

    assert reads.sizes == [ENTRY_HEADER_SIZE + MESSAGE_BYTES] * 4


SIZES = st.integers(1, 9) | st.integers(1, (1 << 31) - 1)
PLACES = st.lists(st.tuples(st.integers(-100, len(LOG) + 100), SIZES), max_size=20)


@given(PLACES, st.booleans())
def test_any_units_give_the_entries_that_single_reads_give(
    places: list[tuple[int, int]], is_sorted: bool
) -> None:
    """Units may be damaged: they may name any place and any size above 0."""
    units = [Unit(pos + ENTRY_HEADER_SIZE, size, 0) for pos, size in places]
    if is_sorted:
        units.sort()
    reads = Reads()

    together = read(units, reads)

    assert together == [read([unit], Reads())[0] for unit in units]
    longest = max((unit.size + ENTRY_HEADER_SIZE for unit in units), default=0)
    assert max(reads.sizes, default=0) <= max(longest, RUN_BYTES_MAX + ENTRY_HEADER_SIZE)
