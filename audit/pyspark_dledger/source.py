"""The interface to Spark: options, pushed filters, and one task per segment.

    spark.dataSource.register(DLedgerSource)
    spark.read.format("dledger").load("n0=http://orders-n0:40912,n1=http://orders-n1:40912")

Options

    members     ID=URL,... ; the same as the argument of `load`
    manifests   JSON, {ID: manifest}: use these manifests instead of asking the members, so that
                several queries see the same state of the logs
    rows        entries (default); digests or packs, which the audit reads: the workers reduce
                entries to `digests.DIGEST_SCHEMA` or `packs.PACK_SCHEMA`
    cuts        JSON, sorted indexes: where digests and packs are divided, beside every 4096 entries
    ranges      JSON, sorted [[FIRST, LAST], ...]: read nothing but these indexes

A row stands for an entry, or for an index at which an entry is absent; see `layout.Flag`. The rows
of a member end at its committed index.

Spark does not tell a Python source which columns a query needs. Name them with
`.schema("index long, flags int")`, and only these are decoded. Comparisons of `index` and `member`
with constants skip segments that cannot match.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from dledger_formats.http.status import Manifest
from pyspark_dledger import columns, plan
from pyspark_dledger.digests import DIGEST_SCHEMA, digests
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.packs import PACK_SCHEMA, packs
from pyspark_dledger.plan import IndexRange
from pyspark_dledger.segments import Absent, Segment, scan

_LOG: Final = logging.getLogger(__name__)

ENTRIES: Final = "entries"
DIGESTS: Final = "digests"
PACKS: Final = "packs"
BATCH_ROWS: Final = 1024
_REDUCERS: Final = {DIGESTS: digests, PACKS: packs}
_SCHEMAS: Final = {
    ENTRIES: columns.SCHEMA,
    DIGESTS: columns.ddl(DIGEST_SCHEMA),
    PACKS: columns.ddl(PACK_SCHEMA),
}


@dataclass(frozen=True)
class SegmentPartition(InputPartition):
    """One task: a segment of one member."""

    member: str
    url: str
    parts: tuple[Segment, ...]
    """The segment, once for every range of it to read."""


class DLedgerSource(DataSource):
    """The data source `dledger`, described in the module's docstring."""

    @classmethod
    def name(cls) -> str:
        return "dledger"

    def schema(self) -> str:
        return _SCHEMAS[_rows_option(self.options)]

    def reader(self, schema: StructType) -> "DLedgerReader":
        return DLedgerReader(schema, self.options)


class DLedgerReader(DataSourceReader):
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._rows = _rows_option(options)
        if self._rows == ENTRIES:
            wanted = {field.name: field.dataType.simpleString() for field in schema}
            self._schema = columns.arrow_schema(wanted)
        self._cuts = np.array(json.loads(options.get("cuts", "[]")), np.int64)
        self._ranges = [
            IndexRange(first=first, last=last)
            for first, last in json.loads(options.get("ranges", "[]"))
        ]
        self._urls = parse_members(_members_option(options))
        self._manifests: dict[str, Any] = json.loads(options.get("manifests", "{}"))
        self._range = IndexRange()
        self._members: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Record filters that exclude whole segments; Spark still applies every filter."""
        for item in filters:
            column = getattr(item, "attribute", None)
            value = getattr(item, "value", None)
            if column == ("index",) and isinstance(value, int):
                self._range = _narrowed(self._range, item, value)
            elif column == ("member",) and isinstance(item, EqualTo | In):
                names = frozenset([value] if isinstance(item, EqualTo) else item.value)
                self._members = names if self._members is None else self._members & names
            yield item

    def partitions(self) -> list[InputPartition]:
        """Plan one task per segment; request manifests that were not given as an option."""
        return [
            SegmentPartition(member, url, parts)
            for member, url in self._urls.items()
            if self._members is None or member in self._members
            for parts in plan.parts(self._manifest(member, url), self._ranges or [self._range])
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a segment."""
        if not isinstance(partition, SegmentPartition):
            return  # Spark passes its own partition if none was planned
        with HttpFiles(partition.url) as files:
            for part in partition.parts:
                yield from self._rows_of(partition.member, part, files)

    def _rows_of(self, member: str, segment: Segment, files: HttpFiles) -> Iterator[pa.RecordBatch]:
        reducer = _REDUCERS.get(self._rows)
        reduced: list[pa.RecordBatch] = []
        for run in scan(segment, files):
            if isinstance(run, Absent) and run.reason:
                _LOG.warning("%s: %s", member, run.reason)
            if reducer is None:
                yield columns.batch(run, member, segment.pos, self._schema)
                continue
            reduced.append(reducer(run, member, segment.pos, self._cuts))
            if self._rows == PACKS or sum(map(len, reduced)) >= BATCH_ROWS:
                yield pa.concat_batches(reduced)
                reduced = []
        if reduced:
            yield pa.concat_batches(reduced)

    def _manifest(self, member: str, url: str) -> Manifest:
        if member in self._manifests:
            return Manifest.from_json(json.dumps(self._manifests[member]).encode())
        with HttpFiles(url) as files:
            return files.manifest()


def parse_members(text: str) -> dict[str, str]:
    """Parse `ID=URL,...`; raises ValueError for anything else."""
    members: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        member, equals, url = part.partition("=")
        if not (member and equals and url) or member in members:
            raise ValueError(f"{part!r}: expected ID=URL, with each ID once")
        members[member] = url
    if not members:
        raise ValueError("no members given; use load('n0=http://HOST:PORT,n1=...')")
    return members


def _rows_option(options: Mapping[str, str]) -> str:
    rows = options.get("rows", ENTRIES)
    if rows not in _SCHEMAS:
        raise ValueError(f"rows is {rows!r}; expected one of {', '.join(_SCHEMAS)}")
    return rows


def _members_option(options: Mapping[str, str]) -> str:
    """Return the members' option: `load` sets `path`, or `paths` to a JSON list."""
    if "paths" in options:
        return ",".join(json.loads(options["paths"]))
    return options.get("members") or options.get("path", "")


def _narrowed(range_: IndexRange, item: Filter, value: int) -> IndexRange:
    first, last = range_.first, range_.last
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        first = max(first, value + isinstance(item, GreaterThan))
    if isinstance(item, EqualTo | LessThan | LessThanOrEqual):
        last = min(last, value - isinstance(item, LessThan))
    return IndexRange(first=first, last=last)
