"""Writers that are killed at random, and right before and after each system call that matters.

See `dledger_store_faults.kills`. To run more: `pytest -m storefaults --timeout 0 --kills 2000`.
"""

import os
import subprocess
import sys

import pytest

from dledger_store_faults.tally import Tally

pytestmark = pytest.mark.storefaults


def run(kind: str, count: int) -> Tally:
    """Run in a separate process, which has no threads and so can fork."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "dledger_store_faults", kind, "--count", str(count)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return Tally.from_json(done.stdout)


@pytest.mark.parametrize("kind", ["kills", "boundary-kills"])
def test_a_killed_writer_loses_nothing_acknowledged(
    request: pytest.FixtureRequest, kind: str
) -> None:
    count = request.config.getoption("--kills") // 2

    tally = run(kind, count)

    assert tally.faults == count
    assert not tally.violations
    assert tally.acknowledged > count
    assert tally.details.get("not reached", 0) <= count // 10
