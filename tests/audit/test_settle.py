"""Logs that move while they are read: what moved is no damage, and damage is no movement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.status import Manifest, StorageState
from dledger_formats.log import disk
from dledger_logs import damage
from dledger_logs.histories import history
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Shape, write_log
from dledger_scan.local_audit import LocalPasses, local_audit
from dledger_scan.scanning import LocalFiles
from pyspark_dledger.files import GoneError

COUNT = 5000
ENTRIES = history(COUNT)
SHAPE = Shape(segment_bytes=1 << 17, index_segment_bytes=32 * 5000)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    return {f"n{k}": write_log(tmp_path / f"n{k}", ENTRIES, SHAPE) for k in range(3)}


def says(logs: dict[str, Log], member: str, life: str = "", **fields: Any) -> Manifest:
    return replace(manifest(logs[member], member, peers=logs, **fields), life=life)


def heals(said: Manifest) -> Manifest:
    return replace(said, status=replace(said.status, storage=StorageState.HEALING, ready=False))


def findings(summary: AuditSummary) -> set[tuple[str, str, int, int]]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def test_segments_that_retention_removes_during_an_audit_are_not_missed(
    logs: dict[str, Log],
) -> None:
    """All members remove two segments after they were asked, and before they were read."""
    old = {member: says(logs, member) for member in logs}
    kept = {member: damage.remove_front(log, 2) for member, log in logs.items()}
    new = {member: says(kept, member) for member in logs}

    summary = local_audit(logs, old, later=[new])

    assert summary.verdict is Verdict.SOUND
    assert summary.findings == 0


def test_a_segment_that_was_lost_and_not_removed_is_still_missed(logs: dict[str, Log]) -> None:
    places = logs["n1"].places_in(logs["n1"].segments[0])
    logs["n1"].data_path(logs["n1"].segments[0]).unlink()

    summary = local_audit(logs)

    assert findings(summary) == {("unreadable", "n1", 0, places[-1].index)}


def test_a_member_that_restarted_and_knows_less_committed_entries_is_not_short(
    logs: dict[str, Log],
) -> None:
    """It serves its files up to the index of its checkpoint, until it has a leader."""
    fewer = says(logs, "n1", "second", committed_index=4200)
    first = says(logs, "n1", "first")

    summary = local_audit(logs, {"n1": first}, later=[{"n1": fewer}], serves={"n1": fewer})

    assert summary.verdict is Verdict.SOUND, summary


def test_a_file_that_is_short_in_the_same_life_is_damage(logs: dict[str, Log]) -> None:
    fewer = says(logs, "n1", committed_index=4200)

    summary = local_audit(logs, serves={"n1": fewer})

    assert ("short_file", "n1", 4201, COUNT - 1) in findings(summary)
    assert summary.verdict is Verdict.DAMAGED


def test_damage_in_a_new_life_is_read_again_and_reported(logs: dict[str, Log]) -> None:
    damage.flip_body(logs["n1"], 77)

    summary = local_audit(
        logs, {"n1": says(logs, "n1", "first")}, later=[{"n1": says(logs, "n1", "second")}] * 2
    )

    assert findings(summary) == {("bad_body_crc", "n1", 77, 77)}


def test_a_log_that_changes_whenever_it_is_read_is_coverage_and_no_damage(
    logs: dict[str, Log],
) -> None:
    damage.flip_body(logs["n1"], 77)
    lives = [{"n1": says(logs, "n1", life)} for life in ("second", "third")]

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=lives)

    assert findings(summary) == {("changed", "n1", 0, COUNT - 1)}
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_sound_log_in_a_new_life_is_sound(logs: dict[str, Log]) -> None:
    lives = [{"n1": says(logs, "n1", "second")}]

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=lives)

    assert summary.findings == 0


def test_a_member_that_stops_during_an_audit_is_not_short(logs: dict[str, Log]) -> None:
    fewer = says(logs, "n1", committed_index=4200)

    summary = local_audit(logs, later=[{"n1": None}], serves={"n1": fewer})

    assert findings(summary) == {("unreadable", "n1", 4201, COUNT - 1)}
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_log_that_is_replaced_during_an_audit_is_read_once_more(
    logs: dict[str, Log], tmp_path: Path
) -> None:
    """The member dropped its log and took its leader's, which begins later."""
    first = says(logs, "n1", "first")
    whole = write_log(tmp_path / "new", ENTRIES, SHAPE)
    logs["n1"] = damage.remove_front(whole, 2)
    begin = logs["n1"].first_index
    second = says(logs, "n1", "second")

    summary = local_audit(logs, {"n1": first}, later=[{"n1": second}] * 2)

    assert findings(summary) == {("begins_later", "n1", 0, begin - 1)}
    assert summary.verdict is Verdict.INCOMPLETE


def test_damage_above_the_committed_index_of_a_new_life_is_not_forgotten(
    logs: dict[str, Log],
) -> None:
    damage.flip_body(logs["n1"], 4503)
    fewer = says(logs, "n1", "second", committed_index=4200)

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=[{"n1": fewer}] * 2)

    assert findings(summary) == {("changed", "n1", 4503, 4503)}
    assert "bad_body_crc" in summary.first_findings[0].detail
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_missing_file_above_the_committed_index_of_a_new_life_is_not_forgotten(
    logs: dict[str, Log],
) -> None:
    log, first = logs["n1"], says(logs, "n1", "first")
    gap = log.places_in(log.segments[-2])
    fewer = says(logs, "n1", "second", committed_index=gap[0].index - 1)

    summary = local_audit(
        logs,
        {"n1": replace(first, data=[*first.data[:-2], first.data[-1]])},
        later=[{"n1": fewer}] * 2,
    )

    assert findings(summary) == {("changed", "n1", gap[0].index, gap[-1].index)}


def test_a_fault_that_is_no_damage_of_bytes_is_not_forgotten_either(
    logs: dict[str, Log], tmp_path: Path
) -> None:
    """A later version wrote entry 4503, and the member served nothing above 4600."""
    odd = [
        replace(entry, magic=7) if index == 4503 else entry for index, entry in enumerate(ENTRIES)
    ]
    logs["n1"] = write_log(tmp_path / "odd", odd, SHAPE)
    shorter = says(logs, "n1", committed_index=4600)
    fewer = says(logs, "n1", "second", committed_index=4200)

    summary = local_audit(
        logs,
        {"n1": says(logs, "n1", "first")},
        later=[{"n1": fewer}] * 2,
        serves={"n1": shorter},
    )

    assert findings(summary) == {("changed", "n1", 4503, 4503)}


def test_a_damaged_member_that_knows_no_committed_entry_afterwards_was_not_compared(
    logs: dict[str, Log],
) -> None:
    damage.flip_body(logs["n1"], 4503)
    none = says(logs, "n1", "second", committed_index=-1)

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=[{"n1": none}] * 2)

    assert findings(summary) == {
        ("changed", "n1", 4503, 4503),
        ("nothing_committed", "n1", -1, -1),
    }


def test_a_member_that_finds_its_damage_and_heals_during_an_audit_does_not_count(
    logs: dict[str, Log],
) -> None:
    damage.flip_body(logs["n1"], 77)
    empty = replace(says(logs, "n1", "second", committed_index=-1), data=[], index=[])

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=[{"n1": heals(empty)}] * 2)

    assert findings(summary) == {
        ("changed", "n1", 77, 77),
        ("not_counted", "n1", -1, -1),
        ("nothing_committed", "n1", -1, -1),
    }
    assert summary.verdict is Verdict.INCOMPLETE


def test_the_copies_of_a_member_that_heals_in_its_new_life_make_no_majority(
    logs: dict[str, Log],
) -> None:
    """A rebuild of n0 is not advised: only n2 was read intact, and counts."""
    damage.flip_body(logs["n0"], 77)
    damage.flip_body(logs["n1"], 4503)
    healing = heals(says(logs, "n1", "second", committed_index=4200))

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=[{"n1": healing}] * 2)

    details = {f.check: f.detail for f in summary.first_findings}
    assert details.keys() == {"bad_body_crc", "changed", "not_counted"}
    assert "no majority of the voters was read" in details["bad_body_crc"]


def test_a_member_that_has_healed_in_its_new_life_counts(logs: dict[str, Log]) -> None:
    """A rebuild of n0 is advised: n1 was read again once it was sound, and n2 is."""
    damage.flip_body(logs["n0"], 77)
    damage.flip_body(logs["n1"], 4503)
    first, second = (says(logs, "n1", life) for life in ("first", "second"))

    summary = local_audit(logs, {"n1": heals(first)}, later=[{"n1": second}] * 2)

    assert findings(summary) == {("bad_body_crc", "n0", 77, 77), ("bad_body_crc", "n1", 4503, 4503)}
    assert all("rebuild the member" in f.detail for f in summary.first_findings)


def test_members_that_all_restart_and_know_nothing_were_not_compared(
    logs: dict[str, Log],
) -> None:
    none = {member: says(logs, member, "second", committed_index=-1) for member in logs}

    summary = local_audit(
        logs,
        {member: says(logs, member, "first") for member in logs},
        later=[none] * 2,
        serves={member: says(logs, member, committed_index=0) for member in logs},
    )

    assert findings(summary) == {("nothing_committed", member, -1, -1) for member in logs}
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_log_that_moves_twice_is_named_once_and_as_a_whole(logs: dict[str, Log]) -> None:
    damage.flip_body(logs["n1"], 77)
    damage.flip_body(logs["n1"], 4503)
    lives = [{"n1": says(logs, "n1", life, committed_index=4200)} for life in ("second", "third")]

    summary = local_audit(logs, {"n1": says(logs, "n1", "first")}, later=lives)

    assert [(f.check, f.first_index, f.last_index) for f in summary.first_findings] == [
        ("changed", 0, COUNT - 1)
    ]


@pytest.fixture
def deep(tmp_path: Path) -> dict[str, Log]:
    """Logs of 7 MiB: a restart rebuilds only the last 4 MiB of their index files."""
    entries = history(3000, body_bytes=(2300, 2500))
    shape = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)
    return {f"n{k}": write_log(tmp_path / f"n{k}", entries, shape) for k in range(3)}


def test_index_files_that_a_restart_hides_are_read_again(
    deep: dict[str, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a member opens its log, it says 404 for each file. The data had been read before."""
    reads, passes = LocalFiles.read, 0
    digests = LocalPasses.digests

    def counted(*arguments: Any) -> Any:
        nonlocal passes
        passes += 1
        return digests(*arguments)

    def hidden(self: LocalFiles, folder: str, name: str, start: int, end: int) -> bytes:
        if passes == 1 and folder == disk.INDEX_FOLDER and self.root == deep["n1"].root:
            raise GoneError("n1 opens its log")
        return reads(self, folder, name, start, end)

    monkeypatch.setattr(LocalPasses, "digests", counted)
    monkeypatch.setattr(LocalFiles, "read", hidden)
    first, second = (says(deep, "n1", life) for life in ("first", "second"))

    summary = local_audit(deep, {"n1": first}, later=[{"n1": second}] * 2)

    assert findings(summary) == set()
    assert summary.verdict is Verdict.SOUND


def test_a_wrong_index_of_a_log_that_changes_whenever_it_is_read_is_no_damage(
    deep: dict[str, Log],
) -> None:
    damage.flip_unit(deep["n1"], 10)
    lives = [{"n1": says(deep, "n1", life)} for life in ("second", "third")]

    summary = local_audit(deep, {"n1": says(deep, "n1", "first")}, later=lives)

    assert {each.check for each in summary.first_findings} == {"changed"}
    assert summary.verdict is Verdict.INCOMPLETE
