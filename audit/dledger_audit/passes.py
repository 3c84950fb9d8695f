"""The two passes over the logs: digests of everything, and packs of what differs.

Spark's workers reduce each segment to digests, one row for up to 4096 entries, and only these cross
to the driver. The pieces whose digests differ are read again; Spark groups their packs by piece,
and its workers compare them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import functions as sql

from dledger_audit.checks.comparison import Range
from dledger_audit.pieces import OUTCOMES, PieceComparer
from dledger_audit.progress import doing
from dledger_audit.snapshots.gathering import SnapshotPass, newest_held, newest_of
from dledger_audit.snapshots.reading import (
    SNAPSHOT_SCHEMA,
    Listed,
    SnapshotRead,
    data_of,
    log_term,
    read_newest,
    reads_of,
    row_of,
)
from dledger_audit.snapshots.registers import DELTA_SCHEMA
from dledger_audit.snapshots.replay import ReplayPass
from dledger_audit.snapshots.steps import copies_of, read_task, step_tasks
from dledger_audit.tasks import TasksDone, frame_of, rows_of
from dledger_formats.http.retention import HeldSnapshot
from dledger_formats.http.status import Manifest
from pyspark_dledger.digests import DIGEST_SCHEMA
from pyspark_dledger.files import ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.members_view import MembersView, SegmentTask
from pyspark_dledger.options import DIGESTS, MEMBERS, PACKS, parse
from pyspark_dledger.packs import PACK_SCHEMA
from pyspark_dledger.ranges import IndexRange


class Passes(SnapshotPass, ReplayPass, Protocol):
    """Reads members' logs up to the committed indexes of these manifests."""

    def digests(
        self,
        manifests: Mapping[str, Manifest],
        cuts: Iterable[int],
        ranges: Sequence[Range] = (),
    ) -> pa.Table:
        """Return the digests of these ranges, or of everything if there are none.

        The table has rows of DIGEST_SCHEMA.
        """
        ...

    def outcomes(self, manifests: Mapping[str, Manifest], comparer: PieceComparer) -> pa.Table:
        """Compare the disputed pieces, and return rows of OUTCOME_SCHEMA."""
        ...


@dataclass(frozen=True, slots=True)
class SparkPasses:
    """Runs the passes on Spark, over the members' HTTP.

    Spark SQL is started only for what groups rows: comparisons of what differs, and replays.
    """

    context: SparkContext
    urls: Mapping[str, str]

    def digests(
        self,
        manifests: Mapping[str, Manifest],
        cuts: Iterable[int],
        ranges: Sequence[Range] = (),
    ) -> pa.Table:
        """Return the digests."""
        tasks, view = self._planned(manifests, DIGESTS, cuts, ranges)
        done = TasksDone(self.context, len(tasks))
        with doing(f"reading the log of {', '.join(manifests)}", done.share):
            return rows_of(self.context, tasks, done.counting(view.read), DIGEST_SCHEMA)

    def outcomes(self, manifests: Mapping[str, Manifest], comparer: PieceComparer) -> pa.Table:
        """Compare the disputed pieces, in Spark's workers."""
        tasks, view = self._planned(manifests, PACKS, comparer.electorate.cuts, comparer.disputed)
        done = TasksDone(self.context, len(tasks))
        packs = frame_of(self.context, tasks, done.counting(view.read), PACK_SCHEMA)

        def compare(rows: pa.Table) -> pa.Table:
            # Spark counts the parameters, and takes the `self` of a method for one of them.
            return comparer.compare(rows)

        with doing("comparing what differs", done.share):
            return packs.groupBy("piece").applyInArrow(compare, OUTCOMES).toArrow()

    def snapshots(
        self, manifests: Mapping[str, Manifest], wanted: Sequence[Listed]
    ) -> list[SnapshotRead]:
        """Read snapshots, each in a task of its own."""
        copies, urls = copies_of(manifests, self.urls), self.urls
        newest = newest_of(wanted)

        def read(listed: Listed) -> Iterator[pa.RecordBatch]:
            with _open(urls[listed.member]) as files:
                found = read_following(files, listed, is_newest=listed in newest)
            yield row_of(found, log_term(copies, found.listed.index))

        done = TasksDone(self.context, len(wanted))
        with doing("reading snapshots", done.share):
            rows = rows_of(self.context, wanted, done.counting(read), SNAPSHOT_SCHEMA)
        return reads_of(rows)

    def changes(
        self, manifests: Mapping[str, Manifest], steps: Sequence[IndexRange], rows_max: int
    ) -> pa.Table | None:
        """Return the changes of each step, one row per key; None if more than `rows_max` rows."""
        tasks = step_tasks(copies_of(manifests, self.urls), steps)
        done = TasksDone(self.context, len(tasks))
        deltas = (
            frame_of(self.context, tasks, done.counting(read_task), DELTA_SCHEMA)
            .groupBy("step", "key")
            .agg(
                sql.min("first").alias("first"),
                sql.max("last").alias("last"),
                sql.max_by("value", "last").alias("value"),
            )
            .limit(rows_max + 1)
        )
        with doing("reading the entries between snapshots", done.share):
            rows = deltas.toArrow()
        return rows if len(rows) <= rows_max else None

    def data(self, listed: Listed) -> bytes | None:
        """Return the data of a snapshot; None if it can no longer be read."""
        try:
            with _open(self.urls[listed.member]) as files:
                return b"".join(data_of(files, listed))
        except ReadError:
            return None

    def _planned(
        self,
        manifests: Mapping[str, Manifest],
        rows: str,
        cuts: Iterable[int],
        ranges: Sequence[Range],
    ) -> tuple[list[SegmentTask], MembersView]:
        """Plan as the data source does; return the tasks, and the view that reads them.

        The source itself is not used, because Spark would start three Python processes to plan one
        query, each of which takes half a second.
        """
        plain = {member: json.loads(each.to_json()) for member, each in manifests.items()}
        asked = {
            "view": MEMBERS,
            "manifests": json.dumps(plain),
            "members": ",".join(f"{member}={self.urls[member]}" for member in manifests),
            "rows": rows,
            "cuts": json.dumps(list(cuts)),
            "ranges": json.dumps([list(each) for each in ranges]),
        }
        options = parse(asked)
        planned = MembersView({}, options).tasks(options.ranges, None)
        return planned, MembersView({}, replace(options, manifests={}))


def read_following(files: HttpFiles, listed: Listed, *, is_newest: bool) -> SnapshotRead:
    """Read a snapshot; if it was its member's newest and was replaced, read its successor."""

    def newest() -> HeldSnapshot | None:
        try:
            return newest_held(files.manifest()) if is_newest else None
        except ReadError:
            return None

    return read_newest(files, listed, newest)


def _open(url: str) -> HttpFiles:
    """Open a member to read its snapshots. A request that hangs delays a task by 20 seconds."""
    return HttpFiles(url, timeout_seconds=10, attempts_max=2)
