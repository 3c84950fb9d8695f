"""Corrupted bytes are refused or harmless; they are never served, and no loss goes unreported.

See `dledger_store_faults.corrupt`. To run more:
`pytest -m storefaults --timeout 0 --corruptions 200000`.
"""

from pathlib import Path

import pytest

from dledger_store_faults import corrupt

pytestmark = pytest.mark.storefaults

PARTS = 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PARTS))
def test_no_corruption_is_accepted(
    request: pytest.FixtureRequest, memory_path: Path, seed: int
) -> None:
    """An exception that is not a NodeError fails the test too."""
    count = request.config.getoption("--corruptions") // PARTS

    # A start verifies so few bytes that reads meet some of the damage.
    tally = corrupt.judge_corruptions(memory_path, count, seed, margin_bytes=2000)

    assert tally.faults == count
    assert not tally.violations
    for outcome in ("refused", "read refused", "term refused", "cut", "unharmed"):
        assert tally.details[outcome] > 0


def test_the_judge_detects_a_store_without_checksums(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: checksums that always match let corruption through."""
    monkeypatch.setattr("dledger_formats.log.disk.crc32", lambda *_: 0)

    tally = corrupt.judge_corruptions(memory_path, 300, 1)

    assert any("is served as" in violation for violation in tally.violations)
