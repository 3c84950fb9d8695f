"""The grid of one-block faults under one of three members; see `dledger_store_faults.grid`.

For all of it: `python -m dledger_store_faults block-faults --count 0`, with PYTHONPATH=tests/lib.
"""

from pathlib import Path

import pytest

from dledger_store_faults import block_faults

pytestmark = pytest.mark.storefaults

PARTS = 2


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_one_bad_block_misleads_nobody_and_stops_no_group(
    request: pytest.FixtureRequest, memory_path: Path, part: int
) -> None:
    count = request.config.getoption("--block-faults")

    tally = block_faults.judge_block_faults(memory_path, count, seed=1, parts=PARTS, part=part)

    assert not tally.violations
    assert tally.faults == tally.details["cells chosen"]
    met = sum(number for name, number in tally.details.items() if name.endswith(": met"))
    assert met > tally.faults // 4, "errors are given to nobody"


def test_members_that_trust_every_checksum_are_found_out(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: then wrong bytes are served, or spread."""
    monkeypatch.setattr("dledger_formats.disk.crc32", lambda *_: 0)

    tally = block_faults.judge_block_faults(
        memory_path, 12, seed=1, only="sealed segment of data: flip.*leader while it serves"
    )

    assert any("is served as" in violation for violation in tally.violations)
