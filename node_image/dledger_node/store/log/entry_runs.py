"""Encoded entries, ready to be copied into a segment; batches and pushes are turned into them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from dledger_formats.log import disk
from dledger_formats.log.channels import ChannelRun
from dledger_formats.log.disk import BLANK_SIZE_MIN, ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Buffer

Stamp: TypeAlias = Callable[[int, Sequence[int]], None]
"""Writes into bodies what depends on their places; it gets the term of the entries and the
position of each. The bodies keep their lengths.
"""


class Link(NamedTuple):
    """The end of a log, which the next entry must follow."""

    end_pos: int
    chain_crc: int | None
    """Chain CRC of the last entry; None if unknown."""


class Place(NamedTuple):
    """The place of consecutive entries of a batch that fit in one segment."""

    pos: int
    end_pos: int
    first: int
    """Number in the batch of the first entry."""
    stop: int
    """Number in the batch of the first entry after them."""


class EntryRun(NamedTuple):
    """Consecutive encoded entries of one term in one segment."""

    pos: int
    data: Buffer
    units: Buffer
    """The index units of the entries."""
    chain_crc: int
    """Chain CRC of the last entry."""
    channels: Sequence[ChannelRun] = ()
    """The runs of pushed entries that have a channel."""

    @property
    def entry_count(self) -> int:
        """Number of entries; at least one."""
        return len(self.units) // INDEX_UNIT_SIZE

    @property
    def end_pos(self) -> int:
        """Position after the last entry."""
        return self.pos + len(self.data)

    def follows(self, index: int, link: Link, segment_size: int) -> bool:
        """Return whether the first entry follows a log that ends with entry `index` at `link`."""
        header = disk.unpack_header(self.data, 0)
        pos = disk.place_entry(header.size, link.end_pos, segment_size)
        if header.index != index + 1 or header.pos != pos:
            return False
        if header.chain_crc == 0 or link.chain_crc is None:
            return True
        return header.chain_crc == disk.chain_crc_of(header, link.chain_crc)

    def without_first(self, count: int) -> "EntryRun":
        """Return the run without its first `count` entries; it must have more than `count`."""
        units = self.units[count * INDEX_UNIT_SIZE :]
        unit = disk.unpack_index_unit(units, 0)
        channels = [run for each in self.channels for run in each.runs_from(unit.index)]
        data = memoryview(self.data)[unit.pos - self.pos :]
        return EntryRun(unit.pos, data, units, self.chain_crc, channels)


def place_bodies(body_sizes: Sequence[int], pos: int, segment_size: int) -> list[Place]:
    """Return the places from `pos` on of entries with bodies of these sizes.

    Raises ValueError if a body does not fit in a segment.
    """
    end_pos = pos + sum(body_sizes) + len(body_sizes) * ENTRY_HEADER_SIZE
    if end_pos - pos + BLANK_SIZE_MIN <= segment_size - pos % segment_size:
        return [Place(pos, end_pos, 0, len(body_sizes))]
    places: list[Place] = []
    for number, body_size in enumerate(body_sizes):
        size = ENTRY_HEADER_SIZE + body_size
        start = disk.place_entry(size, pos, segment_size)
        end_pos = start + size
        if places and start == pos:
            places[-1] = places[-1]._replace(end_pos=end_pos, stop=number + 1)
        else:
            places.append(Place(start, end_pos, number, number + 1))
        pos = end_pos
    return places


def positions_of(places: Sequence[Place], body_sizes: Sequence[int]) -> list[int]:
    """Return where each entry of a batch begins."""
    positions: list[int] = []
    for place in places:
        pos = place.pos
        for body_size in body_sizes[place.first : place.stop]:
            positions.append(pos)
            pos += ENTRY_HEADER_SIZE + body_size
    return positions


def pack_runs(
    bodies: Sequence[Buffer],
    places: Sequence[Place],
    channels: Sequence[int] | None = None,
    *,
    magic: int,
    first_index: int,
    term: int,
    chain_crc: int,
) -> list[EntryRun]:
    """Encode a batch for its places; `chain_crc` is that of the entry before it."""
    runs: list[EntryRun] = []
    for pos, _, first, stop in places:
        data, units, chain_crc = disk.pack_entries(
            bodies[first:stop],
            magic=magic,
            first_index=first_index + first,
            term=term,
            pos=pos,
            previous_chain_crc=chain_crc,
            channels=None if channels is None else channels[first:stop],
        )
        runs.append(EntryRun(pos, data, units, chain_crc))
    return runs
