"""A member's log as files: the places of its entries, and the manifest of the member."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.http.status import FlushDiskType, Manifest, NodeStatus, Role, SegmentFile
from dledger_formats.log import disk

TERM = 1000
"""The term of every member: above those of all histories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of an entry."""

    index: int
    pos: int
    """Offset in the data files."""
    size: int
    segment: str
    offset: int
    """Bytes into that segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A member's files, and the places of their entries before any damage."""

    root: Path
    places: Sequence[Place]
    segment_bytes: int
    index_segment_bytes: int

    @property
    def first_index(self) -> int:
        """Index of the first entry; -1 for an empty log."""
        return self.places[0].index if self.places else -1

    @property
    def last_index(self) -> int:
        """Index of the last entry; -1 for an empty log."""
        return self.places[-1].index if self.places else -1

    @property
    def segments(self) -> list[str]:
        """Names of the data segments that hold entries."""
        return list(dict.fromkeys(place.segment for place in self.places))

    def place(self, index: int) -> Place:
        """Return the place of an entry."""
        return self.places[index - self.first_index]

    def places_in(self, segment: str) -> list[Place]:
        """Return the places of the entries of a segment."""
        return [place for place in self.places if place.segment == segment]

    def data_path(self, segment: str) -> Path:
        """Return the path of a data segment."""
        return self.root / disk.DATA_FOLDER / segment

    def entry_bytes(self, index: int) -> bytes:
        """Read the current bytes at an entry's place."""
        place = self.place(index)
        raw = self.data_path(place.segment).read_bytes()
        return raw[place.offset : place.offset + place.size]

    def unit_place(self, index: int) -> tuple[Path, int]:
        """Return the index file of an entry's unit, and the unit's offset in it."""
        at = index * disk.INDEX_UNIT_SIZE
        start = at - at % self.index_segment_bytes
        return self.root / disk.INDEX_FOLDER / disk.file_name(start), at - start


def manifest(
    log: Log,
    self_id: str,
    *,
    group: str = "g",
    peers: Iterable[str] = (),
    committed_index: int | None = None,
) -> Manifest:
    """Return the manifest of a member that considers its files undamaged."""
    committed = log.last_index if committed_index is None else committed_index
    status = NodeStatus(
        group=group,
        self_id=self_id,
        role=Role.FOLLOWER,
        term=TERM,
        leader_id=None,
        master=False,
        ready=True,
        reason="",
        broker_id=-1,
        ledger_begin_index=log.first_index,
        ledger_end_index=log.last_index,
        ledger_end_term=TERM,
        committed_index=committed,
        durable_index=log.last_index,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        peers={peer: f"{peer}.test:40911" for peer in (self_id, *peers)},
        version="0",
    )
    return Manifest(status=status, data=_data(log, committed), index=_index(log, committed))


def _data(log: Log, committed_index: int) -> list[SegmentFile]:
    """List sealed segments as readable to their end, the last one up to the committed index."""
    files = []
    by_segment = itertools.groupby(log.places, key=lambda place: place.segment)
    for segment, places in ((name, list(places)) for name, places in by_segment):
        is_sealed = segment != log.places[-1].segment
        ends = [p.offset + p.size for p in places if p.index <= committed_index]
        files.append(
            SegmentFile(
                name=segment,
                size_bytes=log.segment_bytes,
                readable_bytes=log.segment_bytes if is_sealed else max(ends, default=0),
                first_index=places[0].index,
            )
        )
    return files


def _index(log: Log, committed_index: int) -> list[SegmentFile]:
    units_per_file = log.index_segment_bytes // disk.INDEX_UNIT_SIZE
    numbers = range(
        max(0, log.first_index) // units_per_file, committed_index // units_per_file + 1
    )
    return [
        SegmentFile(
            name=disk.file_name(number * log.index_segment_bytes),
            size_bytes=log.index_segment_bytes,
            readable_bytes=disk.INDEX_UNIT_SIZE
            * min(units_per_file, committed_index + 1 - number * units_per_file),
            first_index=max(log.first_index, number * units_per_file),
        )
        for number in numbers
    ]
