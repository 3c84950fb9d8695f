"""Every member's log as it is: one row for each entry of each member, damaged ones included."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_formats.http.status import Manifest
from pyspark_dledger import columns, plan
from pyspark_dledger.digests import DIGEST_SCHEMA, digests
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.options import DIGESTS, ENTRIES, PACKS, Options
from pyspark_dledger.packs import PACK_SCHEMA, packs
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import Absent, Segment, scan

_LOG: Final = logging.getLogger(__name__)

BATCH_ROWS: Final = 1024
_REDUCERS: Final = {DIGESTS: digests, PACKS: packs}
_SCHEMAS: Final = {
    ENTRIES: columns.MEMBERS_SCHEMA,
    DIGESTS: columns.ddl(DIGEST_SCHEMA),
    PACKS: columns.ddl(PACK_SCHEMA),
}


def schema(options: Options) -> str:
    """Return the columns that a query gets if it names none, in Spark's language."""
    return _SCHEMAS[options.rows]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One task: a segment of one member."""

    member: str
    url: str
    parts: tuple[Segment, ...]
    """The segment, once for every range of it to read."""


class MembersView:
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, wanted: Mapping[str, str], options: Options) -> None:
        """Take the wanted columns, which map names to Spark types. Raises ValueError."""
        self._options = options
        if options.rows == ENTRIES:
            self._schema = columns.arrow_schema(wanted)

    def tasks(
        self, wanted: Sequence[IndexRange], members: frozenset[str] | None
    ) -> list[SegmentTask]:
        """Plan one task per segment; request manifests that were not given as an option.

        `members` names those to read; None stands for all.
        """
        parts_max = None if self._options.rows == ENTRIES else plan.PARTS_MAX
        return [
            SegmentTask(member, url, parts)
            for member, url in self._options.members.items()
            if members is None or member in members
            for parts in plan.parts(self._manifest(member, url), wanted, parts_max)
        ]

    def read(self, task: SegmentTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment."""
        cuts = np.array(self._options.cuts, np.int64)
        with HttpFiles(task.url) as files:
            for part in task.parts:
                yield from self._rows_of(task.member, part, files, cuts)

    def _rows_of(
        self, member: str, segment: Segment, files: HttpFiles, cuts: np.typing.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        reducer = _REDUCERS.get(self._options.rows)
        reduced: list[pa.RecordBatch] = []
        for run in scan(segment, files):
            if isinstance(run, Absent) and run.reason:
                _LOG.warning("%s: %s", member, run.reason)
            if reducer is None:
                yield columns.batch(run, member, segment.pos, self._schema)
                continue
            reduced.append(reducer(run, member, segment.pos, cuts))
            if self._options.rows == PACKS or sum(map(len, reduced)) >= BATCH_ROWS:
                yield pa.concat_batches(reduced)
                reduced = []
        if reduced:
            yield pa.concat_batches(reduced)

    def _manifest(self, member: str, url: str) -> Manifest:
        if member in self._options.manifests:
            return Manifest.from_json(json.dumps(self._options.manifests[member]).encode())
        with HttpFiles(url) as files:
            return files.manifest()
