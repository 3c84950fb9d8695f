"""Every disk state that a crash may leave of a recorded run opens and keeps all promises.

See `dledger_store_faults.crash`. To run more:
`pytest -m storefaults --timeout 0 --crash-states 500000`.
"""

from pathlib import Path

import pytest

from dledger_store_faults import crash

pytestmark = pytest.mark.storefaults

PARTS = 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PARTS))
def test_no_crash_state_loses_a_promise(
    request: pytest.FixtureRequest, memory_path: Path, seed: int
) -> None:
    count = request.config.getoption("--crash-states") // PARTS

    tally = crash.judge_states(memory_path, count, seed)

    assert tally.faults == count
    assert not tally.violations
    assert tally.acknowledged > count
    assert tally.lost_unacknowledged > count // 10
    assert tally.cut_tails > 0


@pytest.mark.parametrize("deaf_to", ["files", "folders"])
def test_the_judge_detects_a_disk_that_ignores_syncs(memory_path: Path, deaf_to: str) -> None:
    """The control of the test above."""
    tally = crash.judge_states(memory_path, 600, 1, deaf_to)

    assert tally.violations_total > 10
