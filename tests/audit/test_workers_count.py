"""How many workers of Spark an audit starts in its pod."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_audit import workers

GIB = 1 << 30
NO_LIMIT_IN_V1 = 9223372036854771712


def control_group(root: Path, files: dict[str, str]) -> Path:
    """A control group with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        pytest.param({}, None, None, id="no control group"),
        pytest.param({"cpu.max": "max 100000", "memory.max": "max"}, None, None, id="no limit, v2"),
        pytest.param(
            {"cpu.max": "150000 100000", "memory.max": "2147483648"}, 1.5, 2 * GIB, id="limits, v2"
        ),
        pytest.param(
            {
                "cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "2147483648",
            },
            0.5, 2 * GIB, id="limits, v1",
        ),
        pytest.param(
            {
                "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": str(NO_LIMIT_IN_V1),
            },
            None, None, id="no limit, v1",
        ),
    ],
)  # fmt: skip
def test_the_limits_of_the_pod_are_read(
    tmp_path: Path, files: dict[str, str], cpus: float | None, memory: int | None
) -> None:
    found = control_group(tmp_path, files)

    assert workers.cpu_limit(found) == cpus
    assert workers.memory_limit_bytes(found) == memory


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [(1, 2 * GIB, 1), (0.5, 2 * GIB, 1), (64, 2 * GIB, 2), (4, 4 * GIB, 4), (8, None, 8)],
)
def test_the_default_pod_has_room_for_two_workers_however_many_cpus_its_node_has(
    cpus: float, memory: int | None, expected: int
) -> None:
    assert workers.count(cpus, memory) == expected


@given(st.floats(0.001, 512), st.integers(0, 1 << 45))
def test_workers_never_need_more_memory_than_the_pod_has(cpus: float, memory: int) -> None:
    count = workers.count(cpus, memory)

    assert 1 <= count < cpus + 1
    assert count == 1 or workers.DRIVER_BYTES + count * workers.WORKER_BYTES <= memory


def test_the_limit_comes_before_what_the_pod_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setenv(workers.CPU_REQUEST, "1")
    limited = control_group(tmp_path / "limited", {"cpu.max": "300000 100000"})

    assert workers.master(limited) == "local[3]"
    assert workers.master(tmp_path) == "local[1]"


def test_without_limit_and_request_every_usable_cpu_has_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    monkeypatch.setenv(workers.CPU_REQUEST, "0")

    assert workers.master(tmp_path) == "local[5]"
