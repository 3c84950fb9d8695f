"""Audits that read a part each read all of a log that grows, loses its front, and is audited fully.

The rows of its chunks are made up, since a log of so many entries would take hours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dledger_audit.checks.comparison import Range
from dledger_audit.checks.electorate import Electorate
from dledger_audit.history.chunks import CHUNK
from dledger_audit.history.compared import compared
from dledger_audit.history.history_file import PARTS, History, load, save
from dledger_audit.history.remembering import RememberingPasses
from dledger_formats.http.status import Manifest
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.write import write_log
from pyspark_dledger.digests import DIGEST_SCHEMA

MEMBER = "n0"
ALONE = frozenset({MEMBER})
ELECTORATE = Electorate(voters=ALONE, counted=ALONE, held={}, cuts=())


def rows_of(numbers: list[int]) -> pa.Table:
    """Return the rows of whole and sound chunks."""
    starts = np.array(numbers, np.int64) * CHUNK
    columns = {name: pa.array(np.zeros(len(starts), np.int64)) for name in DIGEST_SCHEMA.names}
    columns |= {
        "member": pa.array([MEMBER] * len(starts)),
        "first_index": pa.array(starts),
        "last_index": pa.array(starts + CHUNK - 1),
        "entries": pa.array(np.full(len(starts), CHUNK)),
        "digest": pa.array(starts),
        "reason": pa.array([""] * len(starts)),
    }
    return pa.table(columns).cast(DIGEST_SCHEMA)


@dataclass
class Growing:
    """Passes over a log of the chunks `first` to before `end`, and when each was read last."""

    says: Manifest
    end: int
    first: int = 0
    audits: int = 0
    read_in: dict[int, int] = field(default_factory=dict)
    ranges: int = 0
    read: int = 0
    history: History = field(default_factory=lambda: History(group="g"))

    def digests(
        self, manifests: Mapping[str, Manifest], cuts: Iterable[int], ranges: Sequence[Range] = ()
    ) -> pa.Table:
        wanted = ranges or [(0, self.end * CHUNK)]
        numbers = [
            number
            for first, last in wanted
            for number in range(max(self.first, first // CHUNK), min(self.end, last // CHUNK + 1))
        ]
        self.read_in |= dict.fromkeys(numbers, self.audits)
        self.ranges, self.read = len(wanted), len(numbers)
        return rows_of(numbers)

    outcomes = snapshots = changes = data = None

    def audit(self, *, since_last: bool) -> None:
        self.audits += 1
        status = replace(
            self.says.status,
            ledger_begin_index=self.first * CHUNK,
            committed_index=self.end * CHUNK - 1,
        )
        served = {MEMBER: replace(self.says, status=status, life="a")}
        passes = RememberingPasses(self, self.history, since_last=since_last)  # type: ignore[arg-type]
        passes.digests(served, ())
        found = compared(self.history.rows, passes.read, ELECTORATE)
        self.history = self.history.after(passes.read, found, served, {}, ALONE)

    @property
    def unread_for(self) -> int:
        """Return for how many audits a chunk of the log has not been read, at most."""
        return max(self.audits - self.read_in[number] for number in range(self.first, self.end))


@pytest.fixture
def says(tmp_path: Path) -> Manifest:
    served: Manifest = manifest(write_log(tmp_path / "log", history(10), small_shape()), MEMBER)
    return served


@pytest.mark.parametrize(
    ("grows_by", "loses"), [(0, 0), (7, 0), (14, 0), (50, 0), (200, 0), (14, 14), (3, 9)]
)
def test_every_chunk_is_read_again_within_seven_audits(
    says: Manifest, grows_by: int, loses: int
) -> None:
    log = Growing(says, end=700)
    log.audit(since_last=False)
    for _ in range(6 * PARTS):
        log.end, log.first = log.end + grows_by, log.first + loses
        log.audit(since_last=True)

        assert log.unread_for < PARTS
        assert log.ranges <= 3


def test_no_audit_reads_much_more_than_a_seventh(says: Manifest) -> None:
    log = Growing(says, end=700)
    log.audit(since_last=False)
    for number in range(6 * PARTS):
        log.end += 14
        log.audit(since_last=number % 5 > 0)

        assert log.unread_for < PARTS
        if number % 5:
            assert log.read - 14 < 1.25 * log.end / PARTS


def test_where_the_next_part_begins_is_kept_and_a_history_without_it_is_read(
    says: Manifest, tmp_path: Path
) -> None:
    log = Growing(says, end=700)
    for _ in range(4):
        log.audit(since_last=True)
    save(log.history, tmp_path)
    assert load(tmp_path, "g").again == log.history.again

    log.history = replace(log.history, part=0, again_from=0)  # as an earlier release leaves it
    for _ in range(PARTS):
        log.audit(since_last=True)

    assert log.unread_for < PARTS
