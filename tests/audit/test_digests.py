"""Digests and packs: what they tell of the entries, and where they are divided."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_audit.checks.findings import RUNS_MAX, merged, run_of
from dledger_logs import damage
from dledger_logs.histories import history
from dledger_logs.layout import Log
from dledger_logs.write import Shape, write_log
from dledger_scan.scanning import scan_log
from pyspark_dledger import digests as module
from pyspark_dledger.digests import PIECE_BITS, digests, piece_end, piece_starts
from pyspark_dledger.layout import Flag
from pyspark_dledger.packs import packs

COUNT = 9000
NO_CUTS = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    shape = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)
    return write_log(tmp_path_factory.mktemp("member") / "log", history(COUNT), shape)


def rows_of(log: Log, cuts: list[int]) -> list[dict[str, object]]:
    batches = [digests(run, "n0", 0, np.array(cuts, np.int64)) for run in scan_log(log)]
    rows: list[dict[str, object]] = pa.Table.from_batches(batches).to_pylist()
    return rows


@given(st.integers(0, 20000), st.integers(0, 9000), st.lists(st.integers(0, 30000), unique=True))
@settings(max_examples=200)
def test_pieces_tile_a_run_and_no_cut_and_no_boundary_divides_one(
    first: int, count: int, cuts: list[int]
) -> None:
    at = np.array(sorted(cuts), np.int64)
    starts = piece_starts(first, first + count, at).tolist()

    assert starts[0] <= first < piece_end(starts[0], at)
    assert [piece_end(start, at) for start in starts[:-1]] == starts[1:]
    assert starts[-1] <= first + count < piece_end(starts[-1], at)
    for start in starts:
        inside = range(start + 1, piece_end(start, at))
        assert not any(cut in inside for cut in cuts)
        assert start >> PIECE_BITS == (piece_end(start, at) - 1) >> PIECE_BITS


def test_one_row_stands_for_4096_sound_entries(log: Log) -> None:
    rows = rows_of(log, [])

    assert [(row["first_index"], row["last_index"], row["entries"]) for row in rows] == [
        (0, 4095, 4096), (4096, 8191, 4096), (8192, 8999, 808),
    ]  # fmt: skip
    assert {row["covered"] for row in rows} == {4096, 808}


def test_the_digest_of_a_piece_does_not_depend_on_how_it_was_read(log: Log) -> None:
    whole = {row["first_index"]: row["digest"] for row in rows_of(log, [5000])}
    parts: dict[int, int] = {}
    cuts = np.array([5000], np.int64)
    for run in scan_log(log, window_bytes=700):
        for row in digests(run, "n0", 0, cuts).to_pylist():
            start = int(piece_starts(row["first_index"], row["first_index"], cuts)[0])
            parts[start] = parts.get(start, 0) ^ row["digest"]

    assert parts == whole


def test_flagged_entries_have_rows_by_runs_until_they_are_too_many(
    log: Log, tmp_path: Path
) -> None:
    copy = write_log(
        tmp_path / "log",
        history(COUNT),
        Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000),
    )
    for index in (10, 11, 50, *range(5001, 5001 + 2 * module.RUNS_MAX + 2, 2)):
        damage.flip_body(copy, index)

    rows = [row for row in rows_of(copy, []) if row["flags"] == Flag.BAD_BODY_CRC]

    last = 5001 + 2 * module.RUNS_MAX
    assert [(row["first_index"], row["last_index"], row["entries"]) for row in rows] == [
        (10, 11, 2), (50, 50, 1), (5001, last, module.RUNS_MAX + 1),
    ]  # fmt: skip


def test_packs_hold_every_entry_of_a_run(log: Log) -> None:
    rows = [row for run in scan_log(log) for row in packs(run, "n0", 0, NO_CUTS).to_pylist()]

    assert [row["piece"] for row in rows] == [0, 4096, 8192]
    assert [len(row["identities"]) // 8 for row in rows] == [4096, 4096, 808]
    assert len({row["identities"][at : at + 8] for row in rows for at in range(0, 800, 8)}) == 300


def test_runs_that_continue_each_other_become_one_finding() -> None:
    runs = [run_of("a", "critical", first, first + 9, member="n0") for first in range(0, 50, 10)]
    apart = run_of("a", "critical", 70, 79, member="n0")

    joined = merged([apart, *reversed(runs)])

    assert [(run.first_index, run.last_index, run.entries) for run in joined] == [
        (0, 49, 50), (70, 79, 10),
    ]  # fmt: skip


def test_the_number_of_findings_is_bounded() -> None:
    runs = [run_of("a", "critical", first, first, member="n0") for first in range(0, 1000, 2)]

    joined = merged(runs)

    assert len(joined) == RUNS_MAX + 1
    assert sum(run.entries for run in joined) == 500
    assert joined[-1].last_index == 998
