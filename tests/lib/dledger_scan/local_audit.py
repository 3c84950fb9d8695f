"""Whole audits of logs on disk, without Spark or HTTP: the same passes, in this process."""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dledger_audit.audit import audit
from dledger_audit.capture import ManifestSource, capture
from dledger_audit.checks.comparison import Range
from dledger_audit.passes import read_following
from dledger_audit.pieces import OUTCOME_SCHEMA, PieceComparer
from dledger_audit.report import summarize
from dledger_audit.snapshots.gathering import newest_of
from dledger_audit.snapshots.reading import (
    SNAPSHOT_SCHEMA,
    Listed,
    ServedFiles,
    SnapshotRead,
    data_of,
    log_term,
    read_snapshot,
    reads_of,
    row_of,
)
from dledger_audit.snapshots.registers import DELTA_SCHEMA
from dledger_audit.snapshots.steps import copies_of, read_task, step_tasks
from dledger_formats.audit import AuditSummary
from dledger_formats.http.status import Manifest
from dledger_logs.layout import Log, manifest
from dledger_scan.scanning import LocalFiles
from pyspark_dledger import plan
from pyspark_dledger.digests import DIGEST_SCHEMA, digests
from pyspark_dledger.files import Files, ReadError
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.packs import PACK_SCHEMA, packs
from pyspark_dledger.ranges import IndexRange
from pyspark_dledger.segments import WINDOW_BYTES, scan


@dataclass(frozen=True)
class LocalPasses:
    """Implements `dledger_audit.passes.Passes`."""

    logs: Mapping[str, Log]
    window_bytes: int = WINDOW_BYTES
    serves: Mapping[str, Manifest] = field(default_factory=dict)
    """The manifest by which a member serves files, if it differs from the reported one."""
    second: Mapping[str, Log] = field(default_factory=dict)
    """The logs of members that have others when disputed pieces are read."""

    def digests(
        self,
        manifests: Mapping[str, Manifest],
        cuts: Iterable[int],
        ranges: Sequence[Range] = (),
    ) -> pa.Table:
        """Return the digests of all logs."""
        at = np.array(list(cuts), np.int64)
        wanted = [IndexRange(first=first, last=last) for first, last in ranges]
        batches = [
            digests(run, member, segment.pos, at)
            for member, said in manifests.items()
            for parts in plan.parts(said, wanted or [IndexRange()], plan.PARTS_MAX)
            for segment in parts
            for run in scan(segment, self._files(member, said), self.window_bytes)
        ]
        return pa.Table.from_batches(batches, schema=DIGEST_SCHEMA)

    def _files(self, member: str, said: Manifest) -> Files:
        return LocalFiles(self.logs[member].root, self.serves.get(member, said))

    def _files_later(self, member: str, said: Manifest) -> Files:
        log = self.second.get(member)
        return LocalFiles(log.root, said) if log else self._files(member, said)

    def snapshots(
        self, manifests: Mapping[str, Manifest], wanted: Sequence[Listed]
    ) -> list[SnapshotRead]:
        """Read snapshots, one after the other."""
        copies = copies_of(manifests, self._places(manifests))
        rows = []
        for listed in wanted:
            found = self._read_snapshot(listed, is_newest=listed in newest_of(wanted))
            rows.append(row_of(found, log_term(copies, found.listed.index)))
        return reads_of(pa.Table.from_batches(rows, schema=SNAPSHOT_SCHEMA))

    def _read_snapshot(self, listed: Listed, *, is_newest: bool) -> SnapshotRead:
        return read_snapshot(self._small_files(listed.member), listed)

    def changes(
        self, manifests: Mapping[str, Manifest], steps: Sequence[IndexRange], rows_max: int
    ) -> pa.Table | None:
        """Return what the entries of each step do, each key once a step."""
        tasks = step_tasks(copies_of(manifests, self._places(manifests)), steps)
        read = [batch for task in tasks for batch in read_task(pickle.loads(pickle.dumps(task)))]
        merged: dict[tuple[int, int], dict[str, int]] = {}
        for row in pa.Table.from_batches(read, schema=DELTA_SCHEMA).to_pylist():
            known = merged.setdefault((row["step"], row["key"]), row)
            latest = max(known, row, key=lambda each: each["last"])
            merged[row["step"], row["key"]] = latest | {"first": min(known["first"], row["first"])}
        rows = list(merged.values())
        return pa.Table.from_pylist(rows, DELTA_SCHEMA) if len(rows) <= rows_max else None

    def data(self, listed: Listed) -> bytes | None:
        """Return the data of a snapshot; None if it cannot be read any more."""
        try:
            return b"".join(data_of(self._small_files(listed.member), listed))
        except ReadError:
            return None

    def _places(self, manifests: Mapping[str, Manifest]) -> dict[str, str]:
        return {member: str(self.logs[member].root) for member in manifests}

    def _small_files(self, member: str) -> ServedFiles:
        return LocalFiles(self.logs[member].root, manifest(self.logs[member], member))

    def outcomes(self, manifests: Mapping[str, Manifest], comparer: PieceComparer) -> pa.Table:
        """Compare the disputed pieces."""
        at = np.array(comparer.electorate.cuts, np.int64)
        wanted = [IndexRange(first=first, last=last) for first, last in comparer.disputed]
        batches = [
            packs(run, member, segment.pos, at)
            for member, said in manifests.items()
            for parts in plan.parts(said, wanted)
            for segment in parts
            for run in scan(segment, self._files_later(member, said), self.window_bytes)
        ]
        rows = pa.Table.from_batches(batches, schema=PACK_SCHEMA)
        pieces = sorted(set(rows["piece"].to_pylist()))
        found = [
            comparer.compare(rows.filter(pa.compute.equal(rows["piece"], piece)))
            for piece in pieces
        ]
        return pa.concat_tables([OUTCOME_SCHEMA.empty_table(), *found])


class RemotePasses(LocalPasses):
    """The same passes over the HTTP of running members."""

    _open: Mapping[str, HttpFiles]
    _urls: Mapping[str, str]

    def __init__(self, urls: Mapping[str, str]) -> None:
        super().__init__({})
        object.__setattr__(self, "_urls", urls)
        object.__setattr__(self, "_open", {key: HttpFiles(url) for key, url in urls.items()})

    def close(self) -> None:
        """Close the connections."""
        for files in self._open.values():
            files.__exit__(None, None, None)

    def _files(self, member: str, said: Manifest) -> Files:
        return self._open[member]

    def _small_files(self, member: str) -> ServedFiles:
        return self._open[member]

    def _read_snapshot(self, listed: Listed, *, is_newest: bool) -> SnapshotRead:
        return read_following(self._open[listed.member], listed, is_newest=is_newest)

    def _places(self, manifests: Mapping[str, Manifest]) -> dict[str, str]:
        return dict(self._urls)


@dataclass(frozen=True, slots=True)
class Answer:
    """A member that answers with a manifest."""

    answer: Manifest

    def __enter__(self) -> ManifestSource:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def manifest(self) -> Manifest:
        """Return the manifest."""
        return self.answer


def local_audit(
    logs: Mapping[str, Log],
    says: Mapping[str, Manifest] | None = None,
    *,
    window_bytes: int = WINDOW_BYTES,
    later: Sequence[Mapping[str, Manifest | None]] = (),
    serves: Mapping[str, Manifest] | None = None,
    second: Mapping[str, Log] | None = None,
) -> AuditSummary:
    """Audit the logs as members of one group; `says` replaces manifests.

    `later` replaces them whenever the members are asked again; None means no answer. `serves`
    has the manifests by which members serve files, if those differ from the reported ones. `second`
    has the logs that members have instead of theirs when disputed pieces are read.
    """
    manifests = {member: manifest(log, member, peers=logs) for member, log in logs.items()}
    manifests |= says or {}
    urls = {member: member for member in logs}
    captured = capture("g", urls, lambda url: Answer(manifests[url]))
    turns = iter(later)

    def ask_again() -> dict[str, Manifest]:
        present = manifests | next(turns, {})
        return {member: said for member, said in present.items() if said is not None}

    passes = LocalPasses(logs, window_bytes, serves or {}, second or {})
    return summarize(captured, audit(passes, captured, ask_again))
