"""Every member's log as it is: one row for each entry of each member, damaged ones included."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_formats.http.status import Manifest
from dledger_formats.log import disk
from pyspark_dledger import columns, group, plan
from pyspark_dledger.copies import opened
from pyspark_dledger.digests import DIGEST_SCHEMA, digests
from pyspark_dledger.files import Files
from pyspark_dledger.options import DIGESTS, ENTRIES, FULL, HEADERS, INDEX, PACKS, Options
from pyspark_dledger.packs import PACK_SCHEMA, packs
from pyspark_dledger.pairs import check_decoder, pairs_of
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import WINDOW_BYTES, Absent, Scan, Segment, scan
from pyspark_dledger.turns import in_turns
from pyspark_dledger.units import scan_units

_LOG: Final = logging.getLogger(__name__)

BATCH_ROWS: Final = 1024
SCANS: Final[Mapping[str, Scan]] = {
    INDEX: scan_units,
    HEADERS: partial(scan, sums_bodies=False),
    FULL: scan,
}
_REDUCERS: Final = {DIGESTS: digests, PACKS: packs}
_SCHEMAS: Final[Mapping[str, str]] = {
    DIGESTS: columns.ddl(DIGEST_SCHEMA),
    PACKS: columns.ddl(PACK_SCHEMA),
}


def schema(options: Options) -> str:
    """Return the Spark schema of a query that names no columns."""
    if options.rows == ENTRIES:
        return columns.default_schema(options)
    return _SCHEMAS[options.rows]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One task: a segment of one member, or several small ones."""

    member: str
    place: str
    """The member's URL, or its folder."""
    parts: tuple[Segment, ...]
    """The segments, each once for every range of it to read."""


class MembersView:
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, wanted: Mapping[str, str], options: Options) -> None:
        """Take the wanted columns, which map names to Spark types. Raises ValueError."""
        self._options = options
        if options.rows == ENTRIES:
            self._schema = columns.arrow_schema(wanted, options)
            check_decoder(options)

    def tasks(
        self, wanted: Sequence[IndexRange], members: frozenset[str] | None
    ) -> list[SegmentTask]:
        """Plan tasks of whole segments; request manifests that were not given as an option.

        A task has several segments of a member if all of them together are small enough. `members`
        names the members to read; None stands for all. Members that do not answer are left out.
        Raises RefusedError if members are asked and none answers.
        """
        parts_max = None if self._options.rows == ENTRIES else plan.PARTS_MAX
        planned: dict[str, list[SegmentTask]] = {}
        leaders: set[str] = set()
        places = {
            member: place
            for member, place in self._options.members.items()
            if members is None or member in members
        }
        for member, manifest in self._manifests(places).items():
            place = places[member]
            grouped = self._grouped(plan.parts(manifest, wanted, parts_max))
            planned[member] = [SegmentTask(member, place, parts) for parts in grouped]
            if manifest.status.leader_id == manifest.status.self_id:
                leaders.add(member)
        return in_turns(planned, frozenset(leaders))

    def _grouped(self, parts: Iterable[tuple[Segment, ...]]) -> Iterator[tuple[Segment, ...]]:
        """Join the parts of neighboring segments up to the bytes of a task."""
        joined: tuple[Segment, ...] = ()
        size = 0
        for segments in parts:
            more = _read_bytes(segments[0], self._options.level)
            if joined and size + more > self._options.task_bytes:
                yield joined
                joined, size = (), 0
            joined, size = (*joined, *segments), size + more
        if joined:
            yield joined

    def read(self, task: SegmentTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        cuts = np.array(self._options.cuts, np.int64)
        with opened(task.place, bearer=self._options.bearer) as files:
            for part in task.parts:
                yield from self._rows_of(task.member, part, files, cuts)

    def _rows_of(
        self, member: str, segment: Segment, files: Files, cuts: np.typing.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        reducer = _REDUCERS.get(self._options.rows)
        reduced: list[pa.RecordBatch] = []
        decode = pairs_of(self._options)
        for run in SCANS[self._options.level](segment, files, WINDOW_BYTES):
            if isinstance(run, Absent) and run.reason:
                _LOG.warning("%s: %s", member, run.reason)
            if reducer is None:
                yield columns.batch(run, member, segment.pos, self._schema, decode)
                continue
            reduced.append(reducer(run, member, segment.pos, cuts))
            if self._options.rows == PACKS or sum(map(len, reduced)) >= BATCH_ROWS:
                yield pa.concat_batches(reduced)
                reduced = []
        if reduced:
            yield pa.concat_batches(reduced)

    def _manifests(self, places: Mapping[str, str]) -> dict[str, Manifest]:
        """Return the given manifests and the others, which are requested.

        Raises RefusedError if members are asked and none answers.
        """
        given = {
            member: Manifest.from_json(json.dumps(self._options.manifests[member]).encode())
            for member in places
            if member in self._options.manifests
        }
        to_ask = {member: place for member, place in places.items() if member not in given}
        copies = group.heard(to_ask).copies if to_ask else ()
        return given | {copy.member: copy.manifest for copy in copies}


def _read_bytes(segment: Segment, level: str) -> int:
    """Return about how many bytes a read of a whole segment takes."""
    if level != INDEX:
        return segment.file.readable_bytes
    last = segment.last_wanted if segment.last_expected is None else segment.last_expected
    return max(0, last + 1 - segment.file.first_index) * disk.INDEX_UNIT_SIZE
