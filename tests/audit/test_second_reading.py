"""What differed when the logs were read is not forgotten if the second reading does not show it."""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dledger_audit.checks.agreement import READ_AGAIN
from dledger_audit.pieces import PieceComparer
from dledger_formats.audit import AuditSummary, Verdict
from dledger_logs import damage
from dledger_logs.histories import history, with_other_body
from dledger_logs.layout import Log
from dledger_logs.write import Shape, write_log
from dledger_scan.audited import copied
from dledger_scan.local_audit import local_audit

COUNT = 9000  # two whole chunks of 4096 entries, and a part of a third
CHUNK = (4096, 8191)
ODD = 5003
ENTRIES = history(COUNT)
SHAPE = Shape(segment_bytes=1 << 17, index_segment_bytes=32 * 5000)


def unserved(log: Log, folder: Path, segments: Collection[str] = ()) -> Log:
    """Copy a log without these segments, or without any."""
    shutil.copytree(log.root, folder)
    kept = replace(log, root=folder)
    for segment in segments or log.segments:
        kept.data_path(segment).unlink()
    return kept


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return write_log(tmp_path_factory.mktemp("sound") / "log", ENTRIES, SHAPE)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Log:
    folder = tmp_path_factory.mktemp("other")
    return write_log(folder / "log", with_other_body(ENTRIES, ODD), SHAPE)


def audited(logs: Mapping[str, Log], silent: Collection[str], folder: Path) -> AuditSummary:
    """Audit the logs; the silent members serve nothing again."""
    later = {member: unserved(logs[member], folder / member) for member in silent}
    return local_audit(logs, second=later)


def findings(summary: AuditSummary) -> set[tuple[str, str, int, int]]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def test_a_difference_that_is_read_again_is_named_with_its_entry(
    sound: Log, other: Log, tmp_path: Path
) -> None:
    summary = audited({"n0": sound, "n1": sound, "n2": other}, (), tmp_path)

    assert findings(summary) == {("differs_from_majority", "n2", ODD, ODD)}


@pytest.mark.parametrize("silent", [("n2",), ("n0", "n1"), ("n0", "n1", "n2")])
def test_a_member_that_differed_from_a_majority_is_named_if_it_or_the_others_are_not_read_again(
    sound: Log, other: Log, tmp_path: Path, silent: tuple[str, ...]
) -> None:
    summary = audited({"n0": sound, "n1": sound, "n2": other}, silent, tmp_path)

    assert summary.verdict is Verdict.DIVERGED
    assert findings(summary) == {("differs_from_majority", "n2", *CHUNK)}
    assert "the first reading shows that some of them differ" in summary.first_findings[0].detail


def test_a_difference_without_a_majority_that_is_not_read_again_leaves_the_audit_incomplete(
    sound: Log, other: Log, tmp_path: Path
) -> None:
    summary = audited({"n0": sound, "n1": other}, ("n1",), tmp_path)

    assert summary.verdict is Verdict.INCOMPLETE
    assert findings(summary) == {("changed", "", *CHUNK)}
    assert "n0, n1 held different entries" in summary.first_findings[0].detail


def test_a_difference_that_is_gone_when_it_is_read_again_leaves_the_audit_incomplete(
    sound: Log, other: Log
) -> None:
    summary = local_audit({"n0": sound, "n1": sound, "n2": other}, second={"n2": sound})

    assert summary.verdict is Verdict.INCOMPLETE
    assert findings(summary) == {("changed", "", *CHUNK)}


def test_a_member_that_differs_is_named_beside_another_one_that_was_read_again(
    sound: Log, other: Log, tmp_path: Path
) -> None:
    third = write_log(tmp_path / "third", with_other_body(ENTRIES, ODD + 2), SHAPE)
    logs = {"n0": sound, "n1": sound, "n2": sound, "n3": other, "n4": third}

    summary = audited(logs, ("n3",), tmp_path)

    assert findings(summary) == {
        ("differs_from_majority", "n3", *CHUNK),
        ("differs_from_majority", "n4", ODD + 2, ODD + 2),
    }


def test_a_difference_in_a_segment_that_is_not_read_again_shows_in_the_next_one(
    sound: Log, other: Log, tmp_path: Path
) -> None:
    """A chain CRC covers all entries before it."""
    gone = unserved(other, tmp_path / "n2", [other.place(ODD).segment])

    summary = local_audit({"n0": sound, "n1": sound, "n2": other}, second={"n2": gone})

    assert {(each.check, each.member) for each in summary.first_findings} == {
        ("history_differs", "n2")
    }


def test_chains_that_differed_from_a_majority_are_named_if_they_are_not_read_again(
    sound: Log, tmp_path: Path
) -> None:
    """The entries of the second chunk agree; the first one of n2, which has others, is removed."""
    odd = write_log(tmp_path / "odd", with_other_body(ENTRIES, 3), SHAPE)
    begun = damage.remove_front(odd, 1)
    logs = {"n0": sound, "n1": sound, "n2": begun}

    summary = audited(logs, ("n2",), tmp_path)

    named = [each for each in summary.first_findings if each.check == "history_differs"]
    assert [each.member for each in named] == ["n2"]
    assert named[0].first_index == begun.first_index
    assert summary.verdict is Verdict.DIVERGED


def test_who_has_a_piece_again_is_one_row_and_told_only_if_whole_copies_differed(
    sound: Log, other: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log can have hundreds of thousands of damaged pieces."""
    damaged = copied(sound, tmp_path / "damaged")
    damage.flip_body(damaged, 5)
    rows: list[dict[str, Any]] = []
    compare = PieceComparer.compare

    def seen(self: PieceComparer, packs: pa.Table) -> pa.Table:
        found = compare(self, packs)
        rows.extend(found.to_pylist())
        return found

    monkeypatch.setattr(PieceComparer, "compare", seen)
    summary = local_audit({"n0": damaged, "n1": sound, "n2": other})

    assert ("bad_body_crc", "n0", 5, 5) in findings(summary)
    again = [row for row in rows if row["kind"] == READ_AGAIN]
    assert [(row["first_index"], row["members"]) for row in again] == [(CHUNK[0], "n0, n1, n2")]
