"""The part that Spark knows: options, pushed filters, one task a segment.

    spark.dataSource.register(DLedgerSource)
    spark.read.format("dledger").load("n0=http://orders-n0:40912,n1=http://orders-n1:40912")

Options

    members     ID=URL,... ; what `load` is given means the same
    manifests   JSON, {ID: manifest}: read what these say, not what the members say when asked;
                so that several queries see the logs at one instant

A row is an entry, or an index where an entry should be and is not: see `layout.Flag`. Rows end at
each member's committed index.

Spark tells a Python source nothing of the columns that a query needs; name them with
`.schema("index long, flags int")` and only they are decoded. Comparisons of `index` and `member`
with constants spare the segments that cannot match.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

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
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.plan import IndexRange
from pyspark_dledger.segments import Absent, Segment, scan

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class SegmentPartition(InputPartition):
    """One task: a segment of one member."""

    member: str
    url: str
    segment: Segment


class DLedgerSource(DataSource):
    """The source `dledger`; see the module."""

    @classmethod
    def name(cls) -> str:
        return "dledger"

    def schema(self) -> str:
        return columns.SCHEMA

    def reader(self, schema: StructType) -> "DLedgerReader":
        return DLedgerReader(schema, self.options)


class DLedgerReader(DataSourceReader):
    """Plans and reads one query. It is pickled between the two."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        wanted = {field.name: field.dataType.simpleString() for field in schema}
        self._schema = columns.arrow_schema(wanted)
        self._urls = parse_members(_members_option(options))
        self._manifests: dict[str, Any] = json.loads(options.get("manifests", "{}"))
        self._range = IndexRange()
        self._members: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Remember what spares whole segments, and leave every filter to Spark as well."""
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
        """Plan one task a segment; asks the members whose manifest was not given."""
        return [
            SegmentPartition(member, url, segment)
            for member, url in self._urls.items()
            if self._members is None or member in self._members
            for segment in plan.segments(self._manifest(member, url), self._range)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a batch for every run of the segment's entries."""
        if not isinstance(partition, SegmentPartition):
            return  # Spark sends a partition of its own when we planned none
        with HttpFiles(partition.url) as files:
            for run in scan(partition.segment, files):
                if isinstance(run, Absent) and run.reason:
                    _LOG.warning("%s: %s", partition.member, run.reason)
                yield columns.batch(run, partition.member, partition.segment.pos, self._schema)

    def _manifest(self, member: str, url: str) -> Manifest:
        if member in self._manifests:
            return Manifest.from_json(json.dumps(self._manifests[member]).encode())
        with HttpFiles(url) as files:
            return files.manifest()


def parse_members(text: str) -> dict[str, str]:
    """Read `ID=URL,...`; ValueError for anything else."""
    members: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        member, equals, url = part.partition("=")
        if not (member and equals and url) or member in members:
            raise ValueError(f"{part!r}: ID=URL is expected, each ID once")
        members[member] = url
    if not members:
        raise ValueError("no members are given: load('n0=http://HOST:PORT,n1=...')")
    return members


def _members_option(options: Mapping[str, str]) -> str:
    """Find the members where Spark puts them: `load` gives `path`, or `paths` as a JSON list."""
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
