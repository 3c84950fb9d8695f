"""An audit that knows a long log needs little memory for what it knows."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dledger_audit.checks.comparison import Range
from dledger_audit.checks.electorate import Electorate
from dledger_audit.history.chunks import CHUNK
from dledger_audit.history.compared import compared
from dledger_audit.history.history_file import PARTS, History, MemberReport
from dledger_audit.history.remembering import RememberingPasses
from dledger_formats.http.status import Manifest
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.write import write_log
from pyspark_dledger.digests import DIGEST_SCHEMA

CHUNKS = 50_000  # of 4096 entries of 1 KiB: 200 GiB
MEMBERS = ("n0", "n1", "n2")
MIB = 1 << 20


def rows_of(member: str) -> pa.Table:
    starts = np.arange(CHUNKS) * CHUNK
    numbers = {name: np.zeros(CHUNKS, np.int64) for name in DIGEST_SCHEMA.names}
    columns: dict[str, Any] = numbers | {
        "member": [member] * CHUNKS,
        "first_index": starts,
        "last_index": starts + CHUNK - 1,
        "entries": np.full(CHUNKS, CHUNK),
        "digest": starts,
        "reason": [""] * CHUNKS,
    }
    return pa.table({name: pa.array(columns[name]) for name in columns}).cast(DIGEST_SCHEMA)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.concat_tables([rows_of(member) for member in MEMBERS]).combine_chunks()


@pytest.fixture
def said(tmp_path: Path) -> dict[str, Manifest]:
    log = write_log(tmp_path / "log", history(10), small_shape())
    served = replace(manifest(log, "n0"), life="a")
    status = replace(served.status, committed_index=CHUNKS * CHUNK - 1)
    return dict.fromkeys(MEMBERS, replace(served, status=status))


class Served:
    """Passes over logs of which these rows are the digests."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.ranges = 0

    def digests(
        self, manifests: Mapping[str, Manifest], cuts: Iterable[int], ranges: Sequence[Range] = ()
    ) -> pa.Table:
        self.ranges = len(ranges)
        return self._rows

    outcomes = snapshots = changes = data = None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown_bytes(run: Callable[[], object]) -> int:
    """Return by how much this process has grown when `run` has ended; its result is still kept."""
    before = resident_bytes()
    result = run()
    grown = resident_bytes() - before
    del result
    return grown


def test_what_earlier_audits_read_is_used_in_little_memory(
    rows: pa.Table, said: dict[str, Manifest]
) -> None:
    """Six sevenths of the chunks come from the history, as one table."""
    known = {member: MemberReport.of(each) for member, each in said.items()}
    history = History(group="g", audits=1, reports=known, rows=rows)
    served = Served(DIGEST_SCHEMA.empty_table())
    passes = RememberingPasses(served, history, since_last=True)  # type: ignore[arg-type]
    found: list[pa.Table] = []

    grown = grown_bytes(lambda: found.append(passes.digests(said, (0, CHUNKS * CHUNK))))

    assert abs(len(found[0]) - len(rows) * (PARTS - 1) / PARTS) <= PARTS * len(MEMBERS)
    assert served.ranges == 2, "a seventh, and what is new"
    assert found[0]["member"].num_chunks == 1
    assert grown < 100 * MIB


def test_what_was_read_is_compared_with_what_is_known_in_little_memory(
    rows: pa.Table, said: dict[str, Manifest]
) -> None:
    history = History(group="g", rows=rows)
    passes = RememberingPasses(Served(rows), history, since_last=False)  # type: ignore[arg-type]
    passes.digests(said, ())

    voters = frozenset(MEMBERS)
    electorate = Electorate(voters=voters, counted=voters, held={}, cuts=())

    def judged() -> object:
        found = compared(rows, passes.read, electorate)
        assert not any(passes.suspects(found).values())
        return found, history.after(passes.read, found, said, {}, voters)

    assert grown_bytes(judged) < 100 * MIB
