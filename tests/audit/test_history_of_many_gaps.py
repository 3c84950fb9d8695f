"""Audits since the last one read a segment as a whole if they want too many parts of it."""

from pathlib import Path

import pytest

from dledger_audit.history.chunks import CHUNK
from dledger_formats.audit import Verdict
from dledger_logs import damage
from dledger_logs.write import Shape, write_log
from dledger_scan.audited import COUNT, ENTRIES, NAMES, Audited
from pyspark_dledger import plan

ONE_SEGMENT = Shape(segment_bytes=1 << 22, index_segment_bytes=32 * 5000)
GAPS = (2, 6)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    """A group with damage in two chunks of n1, which each audit reads, and what is between them."""
    monkeypatch.setattr(plan, "PARTS_MAX", 1)
    group = Audited({name: write_log(tmp_path / name, ENTRIES, ONE_SEGMENT) for name in NAMES})
    group.audit()
    for chunk in GAPS:
        damage.flip_body(group.logs["n1"], chunk * CHUNK + 7)
    group.audit()
    return group


def test_what_was_read_is_not_counted_a_second_time_by_what_is_known(group: Audited) -> None:
    verdict, found = group.audit(since_last=True)

    damaged = {("bad_body_crc", "n1", index, index) for index in (2 * CHUNK + 7, 6 * CHUNK + 7)}
    assert (verdict, found) == (Verdict.DAMAGED, damaged)
    assert group.entries == COUNT


def test_damage_that_is_found_between_the_wanted_parts_is_read_again(group: Audited) -> None:
    index = 4 * CHUNK + 7
    damage.flip_body(group.logs["n1"], index)

    _, found = group.audit(since_last=True)

    assert ("bad_body_crc", "n1", index, index) in found
    assert group.history.suspects["n1"] == {chunk * CHUNK for chunk in (*GAPS, 4)}
