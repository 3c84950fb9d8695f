"""The grid of one-block faults under one of three members; see `dledger_store_faults.grid`.

To run all cells: `python -m dledger_store_faults block-faults --count 0`, with
PYTHONPATH=tests/lib.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_store_faults import block_faults, grid
from dledger_store_faults.bad_blocks import Block, Fault
from dledger_store_faults.grid import LONG_BYTES, Cell, Moment, Role, Template

pytestmark = [
    pytest.mark.storefaults,
    # A bug of asyncio, not of the node: a connection that is accepted while its listener closes
    # gets half a transport (`Server._attach` fails), which is closed when it is collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

PARTS = 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_one_bad_block_serves_no_wrong_data_and_stops_no_group(
    request: pytest.FixtureRequest, memory_path: Path, part: int
) -> None:
    count = request.config.getoption("--block-faults")

    tally = block_faults.judge_block_faults(memory_path, count, seed=1, parts=PARTS, part=part)

    assert not tally.violations
    assert tally.faults == tally.details["cells chosen"]
    met = sum(number for name, number in tally.details.items() if name.endswith(": met"))
    assert met > tally.faults // 4, "no caller receives the errors"


def a_body(template: Template, _: Path) -> Iterator[Cell]:
    """A cell whose damage only checksums can detect: bytes in the middle of a body."""
    path = sorted((template.struck / disk.DATA_FOLDER).iterdir())[1]
    raw, at = path.read_bytes(), 0
    while (size := disk.unpack_header(raw, at).size) < LONG_BYTES // 2:
        at += size
    block = Block(f"{disk.DATA_FOLDER}/{path.name}", "none", at + size // 2, at + size // 2 + 9)
    yield Cell("body", block, Fault.FLIP, Role.LEADER, Moment.SERVING)


@pytest.mark.parametrize("checksums", ["believed", "verified"])
def test_the_grid_detects_members_that_trust_their_disks(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, checksums: str
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(grid, "cells", a_body)
    if checksums == "believed":
        monkeypatch.setattr("dledger_formats.log.disk.crc32", lambda *_: 0)

    tally = block_faults.judge_block_faults(memory_path, 1, seed=1)

    found = any("is served as" in violation for violation in tally.violations)
    assert found == (checksums == "believed")
    assert bool(tally.violations) == found
