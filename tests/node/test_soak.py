"""A short soak: everything at once on a real group (`make soak` runs 25 minutes)."""

from pathlib import Path

import pytest

from bench.soak.run import Soak

pytestmark = pytest.mark.fuzz


@pytest.mark.timeout(900)
async def test_a_minute_of_everything_at_once_breaks_no_rule(tmp_path: Path) -> None:
    """A busy machine deposes no leader within this election timeout."""
    soak = Soak(tmp_path, seconds=60.0, seed=7, per_second=150, election_timeout_ms=4000)

    await soak.run()

    assert soak.verdict.violations == []
    assert len(soak.strikes.counts) >= 3, "a soak without strikes proves nothing"
