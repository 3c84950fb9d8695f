"""How many intact copies an entry has, and whose copies count."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.status import Manifest, StorageState
from dledger_logs import damage
from dledger_logs.histories import history, with_channel, with_other_body
from dledger_logs.layout import Log, manifest
from dledger_logs.write import Shape, write_log
from dledger_scan.local_audit import local_audit

COUNT = 5000
ENTRIES = history(COUNT)
SHAPE = Shape(segment_bytes=1 << 17, index_segment_bytes=32 * 5000)
PLACES = [0, 4095, 4096, COUNT - 1]


def findings(summary: AuditSummary) -> set[tuple[str, str, int, int]]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def group(folder: Path, *members: str) -> dict[str, Log]:
    return {member: write_log(folder / member, ENTRIES, SHAPE) for member in members}


def says(
    logs: dict[str, Log], member: str, committed_index: int = COUNT - 1, **status: Any
) -> Manifest:
    served = manifest(logs[member], member, peers=logs, committed_index=committed_index)
    return replace(served, status=replace(served.status, **status))


def details(summary: AuditSummary, check: str) -> list[str]:
    return [finding.detail for finding in summary.first_findings if finding.check == check]


@pytest.mark.parametrize("index", [1, 4095, 4097, COUNT - 1])
def test_an_entry_that_is_damaged_on_all_members_is_left_nowhere(
    index: int, tmp_path: Path
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    for log in logs.values():
        damage.flip_body(log, index)

    summary = local_audit(logs)

    assert ("too_few_copies", "", index, index) in findings(summary)
    assert all("do not rebuild" in text for text in details(summary, "bad_body_crc"))


def test_an_entry_damaged_on_two_of_three_may_be_lost_while_the_third_is_away(
    tmp_path: Path,
) -> None:
    logs = group(tmp_path, "n0", "n1")
    for log in logs.values():
        damage.flip_body(log, 4097)
    voters = {"voters": ["n0", "n1", "n2"]}

    summary = local_audit(logs, {member: says(logs, member, **voters) for member in logs})

    # The third may hold it, which is not a majority either.
    assert ("too_few_copies", "", 4097, 4097) in findings(summary)
    assert ("member_unreachable", "n2", -1, -1) in findings(summary)


def test_an_entry_damaged_on_one_of_two_is_not_lost_while_the_third_is_away(
    tmp_path: Path,
) -> None:
    logs = group(tmp_path, "n0", "n1")
    damage.flip_body(logs["n1"], 4097)
    voters = {"voters": ["n0", "n1", "n2"]}

    summary = local_audit(logs, {member: says(logs, member, **voters) for member in logs})

    assert {check for check, *_ in findings(summary)} == {"bad_body_crc", "member_unreachable"}
    assert "do not rebuild" in details(summary, "bad_body_crc")[0]


def test_an_entry_damaged_on_the_only_member_has_too_few_copies(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0")
    damage.flip_body(logs["n0"], 4999)

    summary = local_audit(logs)

    assert findings(summary) == {
        ("bad_body_crc", "n0", 4999, 4999),
        ("too_few_copies", "", 4999, 4999),
    }


def test_a_rebuild_is_advised_where_a_majority_is_intact(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    damage.flip_body(logs["n1"], 4097)

    summary = local_audit(logs)

    assert findings(summary) == {("bad_body_crc", "n1", 4097, 4097)}
    assert "rebuild the member" in details(summary, "bad_body_crc")[0]


def test_a_segment_that_two_of_three_have_lost_has_too_few_copies(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    lost = logs["n0"].segments[1]
    for member in ("n0", "n1"):
        logs[member].data_path(lost).unlink()
    without = {
        member: replace(
            says(logs, member), data=[each for each in says(logs, member).data if each.name != lost]
        )
        for member in ("n0", "n1")
    }
    places = logs["n0"].places_in(lost)
    first, last = places[0].index, places[-1].index

    summary = local_audit(logs, without)

    assert findings(summary) == {
        ("missing_segment", "n0", first, last),
        ("missing_segment", "n1", first, last),
        ("too_few_copies", "", first, last),
    }


@pytest.mark.parametrize("committed", [-1, 0, 3000])
def test_a_member_that_lags_does_not_hide_a_divergence_above_it(
    committed: int, tmp_path: Path
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2", "n3", "n4")
    logs["n1"] = write_log(tmp_path / "other", with_other_body(ENTRIES, 4501), SHAPE)

    summary = local_audit(logs, {"n2": says(logs, "n2", committed)})

    assert ("differs_from_majority", "n1", 4501, 4501) in findings(summary)
    assert summary.verdict is Verdict.DIVERGED


def test_a_member_that_lags_is_no_problem(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")

    summary = local_audit(logs, {"n2": says(logs, "n2", 4100), "n1": says(logs, "n1", 4990)})

    assert summary.verdict is Verdict.SOUND
    assert summary.findings == 0


def test_a_divergence_is_found_where_only_a_lagging_member_breaks_the_tie(
    tmp_path: Path,
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    logs["n1"] = write_log(tmp_path / "other", with_other_body(ENTRIES, 4501), SHAPE)

    summary = local_audit(logs, {"n2": says(logs, "n2", 4500)})

    assert findings(summary) == {("no_majority", "", 4501, 4501)}
    assert "n0, n1" in details(summary, "no_majority")[0]


@pytest.mark.parametrize(
    "status",
    [
        {"joining": True},
        {"storage": StorageState.HEALING},
        {"storage": StorageState.FULL},
        {"storage": StorageState.DAMAGED},
    ],
)
def test_a_voter_that_joins_or_is_not_sound_counts_as_not_read(
    status: dict[str, Any], tmp_path: Path
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")

    summary = local_audit(logs, {"n2": says(logs, "n2", **status)})

    assert summary.verdict is Verdict.INCOMPLETE
    assert findings(summary) == {("not_counted", "n2", -1, -1)}


LEARNERS = {"voters": ["n0", "n1", "n2"], "learners": ["n3"]}


@pytest.mark.parametrize("is_joining", [False, True])
@pytest.mark.parametrize("storage", [StorageState.HEALING, StorageState.FULL, StorageState.DAMAGED])
def test_a_learner_whose_storage_is_not_sound_counts_as_not_read(
    storage: StorageState, is_joining: bool, tmp_path: Path
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2", "n3")
    served = {member: says(logs, member, **LEARNERS) for member in logs}
    served["n3"] = says(logs, "n3", **LEARNERS, storage=storage, joining=is_joining)

    summary = local_audit(logs, served)

    assert findings(summary) == {("not_counted", "n3", -1, -1)}
    assert (
        f"were not judged, because its storage is {storage}" in details(summary, "not_counted")[0]
    )
    assert summary.verdict is Verdict.INCOMPLETE


def test_a_learner_that_joins_is_no_finding(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2", "n3")
    served = {member: says(logs, member, **LEARNERS) for member in logs}
    served["n3"] = says(logs, "n3", **LEARNERS, joining=True)

    assert local_audit(logs, served).findings == 0


def test_a_copy_of_a_voter_that_does_not_count_makes_no_majority(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    for member in ("n0", "n1"):
        damage.flip_body(logs[member], 77)

    summary = local_audit(logs, {"n2": says(logs, "n2", joining=True)})

    assert ("too_few_copies", "", 77, 77) in findings(summary)


def test_a_learner_is_compared_and_named_but_makes_no_majority(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2", "n3")
    served = {member: says(logs, member, **LEARNERS) for member in logs}
    assert local_audit(logs, served).verdict is Verdict.SOUND
    logs["n3"] = write_log(tmp_path / "other", with_other_body(ENTRIES, 4501), SHAPE)
    served["n3"] = says(logs, "n3", **LEARNERS)

    summary = local_audit(logs, served)

    assert findings(summary) == {("differs_from_majority", "n3", 4501, 4501)}
    assert summary.verdict is Verdict.DIVERGED
    for member in ("n0", "n1"):
        damage.flip_body(logs[member], 77)
    assert ("too_few_copies", "", 77, 77) in findings(local_audit(logs, served))


def test_a_learner_without_a_url_is_missing(tmp_path: Path) -> None:
    logs = group(tmp_path, "n0")
    served = {"n0": says(logs, "n0", voters=["n0"], learners=["n3"])}

    assert findings(local_audit(logs, served)) == {("member_unreachable", "n3", -1, -1)}


def test_members_are_voters_by_the_latest_membership(tmp_path: Path) -> None:
    """n2 was removed; n1 does not know it yet."""
    logs = group(tmp_path, "n0", "n1")
    old = says(logs, "n1", voters=["n0", "n1", "n2"], membership_index=3)
    new = says(logs, "n0", voters=["n0", "n1"], membership_index=9)

    assert local_audit(logs, {"n0": new, "n1": old}).verdict is Verdict.SOUND


@pytest.mark.parametrize("index", [1, 4096, 4500])
def test_another_channel_under_right_checksums_is_a_divergence(index: int, tmp_path: Path) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    logs["n1"] = write_log(tmp_path / "other", with_channel(ENTRIES, index, 1 << 16), SHAPE)

    assert findings(local_audit(logs)) == {("differs_from_majority", "n1", index, index)}


def test_a_flipped_channel_in_the_first_entry_behind_a_removed_prefix_is_found(
    tmp_path: Path,
) -> None:
    logs = group(tmp_path, "n0", "n1", "n2")
    kept = {member: damage.remove_front(log, 2) for member, log in logs.items()}
    first = kept["n1"].first_index
    damage.flip_header(kept["n1"], first, "channel", 16)

    summary = local_audit(kept)

    assert findings(summary) == {("differs_from_majority", "n1", first, first)}


def test_another_history_before_a_removed_prefix_is_found(tmp_path: Path) -> None:
    """The entries that are left agree; the chain CRCs still tell that those before did not."""
    logs = group(tmp_path, "n0", "n1", "n2")
    logs["n1"] = write_log(tmp_path / "other", with_channel(ENTRIES, 100, 1 << 16), SHAPE)
    kept = {member: damage.remove_front(log, 2) for member, log in logs.items()}
    first = kept["n1"].first_index

    summary = local_audit(kept)

    assert findings(summary) == {("history_differs", "n1", first, first)}
    assert summary.verdict is Verdict.DIVERGED
