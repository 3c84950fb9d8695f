"""How fast a member is read by all processes of a machine together."""

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.pace import (
    CATCH_UP_FACTOR,
    CREDIT_S_MAX,
    PART_BYTES_MIN,
    Pace,
    pace_of,
    paced,
)

READER = """
import sys
from pyspark_dledger.pace import pace_of

pace = pace_of("member")
for _ in range(int(sys.argv[1])):
    pace.spend(100_000)
"""


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@given(st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 3)), min_size=1, max_size=30))
def test_no_stretch_of_time_has_more_than_the_rate_allows(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, float]]
) -> None:
    rate, clock = 1_000_000, Clock()
    pace = Pace(tmp_path_factory.mktemp("pace") / "n0", rate, clock=clock, sleep=clock.sleep)
    told = [(clock.now_s, 0)]
    for count, idle_s in reads:
        clock.now_s += idle_s
        pace.spend(count)
        told.append((clock.now_s, told[-1][1] + count))

    # What the last read of a stretch brought is paid for after it, by the pause that follows.
    for first, (begin_s, before) in enumerate(told):
        for end_s, after in told[first:]:
            assert after - before <= rate * (end_s - begin_s + CREDIT_S_MAX) + 1
    assert all(later[0] >= earlier[0] for earlier, later in pairwise(told))


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 3)), min_size=1, max_size=30))
def test_idle_time_is_made_up_for_at_twice_the_rate(
    tmp_path_factory: pytest.TempPathFactory, reads: list[tuple[int, float]]
) -> None:
    """Two processes read in turns, after ten idle seconds."""
    rate, clock = 1_000_000, Clock()
    file = tmp_path_factory.mktemp("pace") / "n0"
    paces = [Pace(file, rate, clock=clock, sleep=clock.sleep) for _ in range(2)]
    paces[0].spend(1)
    clock.now_s += 10
    told = [(clock.now_s, 0)]
    for number, (count, idle_s) in enumerate(reads):
        clock.now_s += idle_s
        paces[number % 2].spend(count)
        told.append((clock.now_s, told[-1][1] + count))

    for first, (begin_s, before) in enumerate(told):
        for end_s, after in told[first:]:
            assert after - before <= CATCH_UP_FACTOR * rate * (end_s - begin_s) + 1


def test_processes_share_the_rate(tmp_path: Path) -> None:
    with paced(1_000_000):
        began_s = time.monotonic()
        readers = [
            subprocess.Popen([sys.executable, "-c", READER, "10"], env=dict(os.environ))
            for _ in range(2)
        ]
        assert [each.wait() for each in readers] == [0, 0]
        took_s = time.monotonic() - began_s

    assert took_s >= 2.0 - CREDIT_S_MAX, "two megabytes at one a second, less the credit"
    assert pace_of("member") is None, "it ends with the block"


def test_a_member_is_read_no_faster_than_the_rate(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", history(4000), small_shape(1 << 20))
    file = manifest(log, "n0").data[0]
    count, rate = 0, 200_000
    with served(log.root, manifest(log, "n0")) as url, paced(rate), HttpFiles(url) as n0:
        began_s = time.monotonic()
        for begin in range(0, file.size_bytes, 50_000):
            count += len(n0.read("data", file.name, begin, begin + 50_000))
        took_s = time.monotonic() - began_s

    assert count > 300_000
    assert took_s >= count / rate


@pytest.mark.parametrize("rate", [0, 5_000_000])
def test_with_a_rate_a_segment_is_requested_in_small_parts(rate: int, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", history(6000), small_shape(1 << 19))
    file, sizes = manifest(log, "n0").data[0], list[int]()
    raw = log.data_path(file.name).read_bytes()

    def note(_: str, size: int) -> None:
        sizes.append(size)

    with served(log.root, manifest(log, "n0"), sent=note) as url, paced(rate), HttpFiles(url) as n0:
        assert n0.read("data", file.name, 0, len(raw)) == raw
        assert sum(sizes) == len(raw)
        assert max(sizes) == (rate // 50 if rate else len(raw))
        assert n0.read("data", file.name, len(raw) - 7, len(raw) + 10**6) == raw[-7:]


def test_at_a_low_rate_the_parts_are_not_tiny(tmp_path: Path) -> None:
    assert Pace(tmp_path / "n0", 1000).part_bytes == PART_BYTES_MIN


def test_without_a_rate_nothing_is_bound() -> None:
    with paced(0):
        assert pace_of("member") is None
