"""A leader that stands still or is parted from the others: a few rounds of `bench.failover`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.local_cluster.host import why_no_networks

REPOSITORY = Path(__file__).parents[2]
GAP_MAX_MS = 10_000
"""Generous limit for a busy machine; docs/benchmarks.md has figures of a quiet one."""

WHY_NOT = why_no_networks()
pytestmark = [
    pytest.mark.group,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"there is no network to cut: {WHY_NOT}"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", ["freeze", "transfer", "cut-out", "cut-in", "cut-both"])
def test_nothing_is_lost_moved_or_doubled_when_the_leader_suffers(
    fault: str, tmp_path: Path
) -> None:
    figures = tmp_path / "figures.json"
    options = ("--rounds=2", "--per-second=200", f"--json={figures}", f"--folder={tmp_path}")
    subprocess.run(
        [sys.executable, "-m", "bench.failover", "--faults", fault, *options],
        cwd=REPOSITORY,
        check=True,
        timeout=300,
    )

    [result] = json.loads(figures.read_text())

    assert result["broken"] == 0
    assert result["acknowledged"] > 0
    assert max(result["gaps_ms"]) < GAP_MAX_MS
    if fault == "transfer":
        assert result["unknown"] + result["refused"] == 0, "a planned transfer fails no append"
