"""The interface to Spark: the data source, its options, and pushed filters.

    spark.read.format("dledger").load("n0=http://orders-n0:40912,n1=http://orders-n1:40912")

Options

    members         ID=URL,... ; the same as the argument of `load`
    view            log (default): each committed entry once, from a member that has it intact;
                    members: every member's log as it is, damaged entries included
    level           full (default): read every byte, and check all checksums; headers: check headers
                    alone, and read no large body; index: read index files alone
    decoder         register, kv, json:FIELD, rocketmq or module:function: adds the columns `key`
                    and `value` (`pairs`)
    startingIndex   read no entry before this index
    endingIndex     read no entry after this index
    ranges          JSON, sorted [[FIRST, LAST], ...]: read nothing but these indexes
    onRemoved       fail (default) or skip: what to do if all members have removed entries
                    from `startingIndex` or the first range on
    maxEntriesPerBatch, maxBytesPerBatch
                    a batch of `readStream` has at most so many entries (no bound) or bytes (1 GiB)
    tokenFile       a file with the group's audit token, on each machine that runs tasks
    token           the token itself, instead of tokenFile; it is not replaced when the group
                    replaces its tokens
    taskBytes       a task reads about so many bytes at most (256 MiB); of the view members, at
                    least one segment

The audit alone uses these:

    manifests   JSON, {ID: manifest}: use these manifests instead of asking the members, so that
                several queries see the same state of the logs
    rows        entries (default); digests or packs: the workers reduce entries to
                `digests.DIGEST_SCHEMA` or `packs.PACK_SCHEMA`
    cuts        JSON, sorted indexes: where digests and packs are divided, beside every 4096 entries

A row of the view members stands for an entry, or for an index at which an entry is absent; see
`layout.Flag`. The rows of a member end at its committed index.

Spark does not tell a Python source which columns a query needs. Name them with
`.schema("index long, flags int")`, and only these are decoded. Comparisons of `index` and `member`
with constants skip segments that cannot match, if the session has filters pushed to Python
sources: `spark.sql.python.filterPushdown.enabled`.

`readStream` follows the log; see `stream`.

This module imports nothing heavy, because Spark imports it in every session that uses any Python
data source (`discovery`).
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
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

from pyspark_dledger.options import MEMBERS, Options, parse
from pyspark_dledger.ranges import IndexRange, cut

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    ReadMaxBytes, SupportsTriggerAvailableNow = None, object  # type: ignore[assignment, misc]
    ReadAllAvailable, ReadLimit = object, object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    import pyarrow as pa

Offset: TypeAlias = dict[str, Any]
_INSTALL: Final = "install it wherever Spark runs: pip install 'dledger-operator[spark]'"


class DLedgerSource(DataSource):
    """The data source `dledger`, described in the module's docstring."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises OptionError."""
        super().__init__(dict(options))
        self._asked = parse(options)

    @classmethod
    def name(cls) -> str:
        return "dledger"

    def schema(self) -> str:
        schema: str = _reading(self._asked).schema(self._asked)
        return schema

    def reader(self, schema: StructType) -> "DLedgerReader":
        return DLedgerReader(_columns(schema), self._asked)

    def streamReader(self, schema: StructType) -> "DLedgerStreamReader":  # noqa: N802
        return DLedgerStreamReader(_columns(schema), self._asked)


class DLedgerReader(DataSourceReader):
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, columns: Mapping[str, str], asked: Options) -> None:
        self._asked = asked
        reading = _reading(asked)
        view = reading.MembersView if asked.view == MEMBERS else reading.LogView
        self._view = view(columns, asked)
        self._range = IndexRange()
        self._members: frozenset[str] | None = None

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802 - Spark's name
        """Take filters in sessions that push them, and also work in sessions that do not."""
        return _PushFilters(self)

    def take(self, filters: Iterable[Filter]) -> Iterator[Filter]:
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
        """Plan the tasks."""
        wanted = cut(self._asked.ranges, self._range)
        return [_Partition(task) for task in self._view.tasks(wanted, self._members)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a task."""
        if isinstance(partition, _Partition):  # Spark passes its own if none was planned
            yield from self._view.read(partition.value)


class DLedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log for one streaming query."""

    def __init__(self, columns: Mapping[str, str], asked: Options) -> None:
        """Create the reader. Raises OptionError, and ImportError if this Spark is too old.

        Spark 4.1 does not tell a source how far a query with a checkpoint has read. A member that
        has just restarted knows a lower committed index, so the query would go back, and read
        entries twice.
        """
        if ReadMaxBytes is None:
            raise ImportError("readStream of the data source dledger needs pyspark 4.2 or later")
        self._limit = ReadMaxBytes(asked.batch_bytes)
        self._view = _imported("log_view").LogView(columns, asked)
        self._stream = _imported("stream").LogStream(asked)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name, like those below
        """Return where a query without a checkpoint begins."""
        offset: Offset = self._stream.first()
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit for which `latestOffset` applies the bounds of the options."""
        return self._limit

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next batch ends."""
        is_bounded = not isinstance(limit, ReadAllAvailable)
        offset: Offset = self._stream.latest(start, is_bounded=is_bounded)
        return offset

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return where the log ends, for the progress of the query."""
        offset: Offset | None = self._stream.newest
        return offset

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end where the log ends now."""
        self._stream.stop_here()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan the tasks of a batch."""
        return [_Partition(task) for task in self._stream.tasks(start, end)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a task."""
        yield from self._view.read(partition.value)


class _PushFilters:
    """The method `pushFilters`, which Spark's own check takes for the one of the base class.

    Spark refuses every read of a reader that implements `pushFilters` in a session that does not
    push filters to Python sources, which is the default. A reader cannot see the setting: only the
    call shows it. So the check, which compares `__func__`, must not see that it is implemented.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: DLedgerReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)


class _Partition(InputPartition):
    """One task of a view."""


def _reading(asked: Options) -> ModuleType:
    """Import the module of the view. Raises ImportError that says what to install."""
    return _imported("members_view" if asked.view == MEMBERS else "log_view")


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"pyspark_dledger.{name}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the data source dledger needs the Python package {error.name}; {_INSTALL}"
        ) from error


def _columns(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _narrowed(range_: IndexRange, item: Filter, value: int) -> IndexRange:
    first, last = range_.first, range_.last
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        first = max(first, value + isinstance(item, GreaterThan))
    if isinstance(item, EqualTo | LessThan | LessThanOrEqual):
        last = min(last, value - isinstance(item, LessThan))
    return IndexRange(first=first, last=last)
