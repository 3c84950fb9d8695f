"""Whole audits without Spark: what is read of several members, and what is said about it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from dledger_formats.audit import AuditSummary, Verdict
from dledger_logs import damage
from dledger_logs.histories import history, with_membership, with_other_body
from dledger_logs.layout import manifest
from dledger_logs.write import Entry, Shape, write_log
from dledger_scan.local_audit import local_audit

COUNT = 9000  # two whole chunks of 4096 entries, and a part of a third
ENTRIES = with_membership(history(COUNT), 4200, ("n0", "n1"), ("n2",))
LARGE = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)

Found: TypeAlias = tuple[str, str, int, int]
"""Check, member, first and last index."""


def findings(summary: AuditSummary) -> set[Found]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def test_sound_members_are_reported_sound_despite_different_ends(
    tmp_path: Path,
) -> None:
    """Entries after the committed index may differ."""
    tail = with_other_body(ENTRIES, COUNT - 1)
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", tail, LARGE),
        "n2": write_log(tmp_path / "n2", ENTRIES[:8500], LARGE),
    }
    says = {"n1": manifest(logs["n1"], "n1", peers=logs, committed_index=COUNT - 2)}

    summary = local_audit(logs, says)

    assert summary.verdict is Verdict.SOUND, summary
    assert summary.findings == 0
    assert summary.agreed_index == 8499
    assert summary.entries == COUNT
    assert (
        summary.record_bytes
        == sum(place.size for log in logs.values() for place in log.places)
        - len(tail[-1].body)
        - 48
    )
    assert summary.members == ["n0", "n1", "n2"]


def test_damage_that_checksums_detect_is_not_reported_as_divergence(tmp_path: Path) -> None:
    logs = {f"n{k}": write_log(tmp_path / f"n{k}", ENTRIES, LARGE) for k in range(3)}
    damage.flip_body(logs["n1"], 4097)
    damage.flip_header(logs["n1"], 8191, "term", 1)

    summary = local_audit(logs)

    assert summary.verdict is Verdict.DAMAGED
    assert findings(summary) == {
        ("bad_body_crc", "n1", 4097, 4097),
        ("bad_chain_crc", "n1", 8191, 8191),
    }


def test_divergence_is_reported_entry_by_entry_up_to_the_edges(tmp_path: Path) -> None:
    """The first common entry and the last agreed entry lie in the middle of chunks."""
    shape = replace(LARGE, segment_bytes=1 << 15)
    n2 = damage.remove_front(write_log(tmp_path / "n2", ENTRIES, shape), 3)
    begin, agreed = n2.first_index, 8601
    changed = with_other_body(with_other_body(ENTRIES, begin), agreed)
    logs = {
        "n0": write_log(tmp_path / "n0", changed, shape),
        "n1": write_log(tmp_path / "n1", ENTRIES, shape),
        "n2": n2,
    }
    says = {"n1": manifest(logs["n1"], "n1", peers=logs, committed_index=agreed)}

    summary = local_audit(logs, says)

    assert summary.verdict is Verdict.DIVERGED
    assert findings(summary) == {
        ("differs_from_majority", "n0", begin, begin),
        ("differs_from_majority", "n0", agreed, agreed),
        ("begins_later", "n2", 0, begin - 1),
    }
    assert summary.first_findings[0].detail.startswith("1 entry")


def test_no_member_is_blamed_if_two_members_differ(tmp_path: Path) -> None:
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", with_other_body(ENTRIES, 5001), LARGE),
    }

    summary = local_audit(logs)

    assert summary.verdict is Verdict.DIVERGED
    assert findings(summary) == {("no_majority", "", 5001, 5001)}
    assert "n0, n1" in summary.first_findings[0].detail


def test_entries_that_a_majority_has_lost_are_reported_as_too_few_copies(tmp_path: Path) -> None:
    """n1 and n2 have lost the same body; n2 also lacks entries that it reports as committed."""
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", ENTRIES, LARGE),
        "n2": write_log(tmp_path / "n2", ENTRIES[:8000], LARGE),
    }
    damage.flip_body(logs["n1"], 4321)
    damage.flip_body(logs["n2"], 4321)
    served = manifest(logs["n2"], "n2", peers=logs)
    says = {"n2": replace(served, status=replace(served.status, committed_index=COUNT - 1))}

    summary = local_audit(logs, says)

    assert summary.verdict is Verdict.DAMAGED
    assert findings(summary) == {
        ("bad_body_crc", "n1", 4321, 4321),
        ("bad_body_crc", "n2", 4321, 4321),
        ("too_few_copies", "", 4321, 4321),
        ("missing_entries", "n2", 8000, COUNT - 1),
    }


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"n0": ENTRIES[:1]}, "1 member of g: the same entries up to index 0"),
        ({"n0": [], "n1": []}, "2 members of g: nothing is committed yet"),
    ],
    ids=["a-group-of-one-with-a-noop", "empty-logs"],
)
def test_groups_with_almost_no_entries_are_sound(
    tmp_path: Path, entries: Mapping[str, list[Entry]], said: str
) -> None:
    logs = {member: write_log(tmp_path / member, log, LARGE) for member, log in entries.items()}

    summary = local_audit(logs)

    assert summary.verdict is Verdict.SOUND
    assert summary.message == said
    assert summary.findings == 0


def test_java_members_with_other_positions_and_segments_are_sound(tmp_path: Path) -> None:
    java = replace(LARGE, has_checksums=False)
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, java),
        "n1": write_log(tmp_path / "n1", ENTRIES, replace(java, segment_bytes=300_000, shift=4096)),
    }

    summary = local_audit(logs)

    assert summary.verdict is Verdict.SOUND
    assert {finding.check for finding in summary.first_findings} == {"no_crc"}
