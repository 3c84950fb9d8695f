"""Every state that a crash may leave of a recorded run: it opens, with all that was promised.

How it is done is `dledger_store_faults.crash`. For more of them: `pytest -m storefaults
--crash-states 500000`.
"""

from pathlib import Path

import pytest

from dledger_store_faults import crash

pytestmark = pytest.mark.storefaults

PARTS = 4


@pytest.mark.timeout(0)
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
def test_a_disk_that_ignores_syncs_breaks_promises(memory_path: Path, deaf_to: str) -> None:
    """Without this the test above could not fail."""
    tally = crash.judge_states(memory_path, 600, 1, deaf_to)

    assert tally.violations_total > 10
