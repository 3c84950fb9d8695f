"""What is missing at the front of a log is explained by a rule, or it is named."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_audit.checks.electorate import Held
from dledger_audit.checks.removed import faults, nowhere
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.retention import HeldSnapshot, Removal, RemovalRule
from dledger_formats.http.status import Manifest, StorageState
from dledger_logs import damage
from dledger_logs.fronts import by_rule, retention, with_retention
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.state import register_after, write_snapshot
from dledger_logs.write import write_log
from dledger_scan.local_audit import local_audit

ENTRIES = history(400)


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Log]:
    """Three members that begin with the fifth, the third and the first segment."""
    whole = {f"n{k}": write_log(tmp_path / f"n{k}", ENTRIES, small_shape()) for k in range(3)}
    return {
        "n0": damage.remove_front(whole["n0"], 4),
        "n1": damage.remove_front(whole["n1"], 2),
        "n2": whole["n2"],
    }


def explained(logs: dict[str, Log], member: str) -> Manifest:
    """Return a manifest whose record explains where the log begins."""
    served = manifest(logs[member], member, peers=logs)
    begin = logs[member].first_index
    return with_retention(served, *([by_rule(0, begin - 1)] if begin else []))


def audited(logs: dict[str, Log], **says: Manifest) -> AuditSummary:
    return local_audit(logs, {member: explained(logs, member) for member in logs} | says)


def written(log: Log, *indexes: int) -> list[HeldSnapshot]:
    """Write snapshots that end with these entries."""
    return [
        write_snapshot(log.root, each, ENTRIES[each].term, register_after(ENTRIES, each))
        for each in indexes
    ]


def found(summary: AuditSummary) -> list[tuple[str, str, int, int]]:
    return [(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings]


def test_fronts_that_rules_explain_are_no_finding_wherever_members_begin(
    logs: dict[str, Log],
) -> None:
    summary = audited(logs)

    assert summary.verdict is Verdict.SOUND, summary
    assert summary.findings == 0


def test_a_front_that_is_lost_is_critical_and_names_who_has_it(logs: dict[str, Log]) -> None:
    begin = logs["n1"].first_index
    served = with_retention(explained(logs, "n1"), by_rule(0, begin - 21))

    summary = audited(logs, n1=served)

    assert found(summary) == [("removed", "n1", begin - 20, begin - 1)]
    assert summary.verdict is Verdict.DAMAGED
    assert "other members hold them" in summary.first_findings[0].detail
    assert "do not rebuild" in summary.first_findings[0].detail, "only n2 holds them"


def test_entries_that_are_left_nowhere_are_named(logs: dict[str, Log], tmp_path: Path) -> None:
    logs["n2"] = damage.remove_front(write_log(tmp_path / "again", ENTRIES, small_shape()), 1)
    begin, left = logs["n1"].first_index, logs["n2"].first_index
    assert 5 < left < begin

    summary = audited(logs, n1=with_retention(explained(logs, "n1"), by_rule(0, 4)))

    assert found(summary) == [("removed", "n1", 5, begin - 1)]
    assert f"no member that was read has 5-{left - 1})" in summary.first_findings[0].detail


def test_the_member_is_rebuilt_if_the_others_have_what_it_lost(
    logs: dict[str, Log], tmp_path: Path
) -> None:
    logs["n0"] = write_log(tmp_path / "whole", ENTRIES, small_shape())

    summary = audited(logs, n1=with_retention(explained(logs, "n1")))

    assert found(summary) == [("removed", "n1", 0, logs["n1"].first_index - 1)]
    assert summary.first_findings[0].detail.endswith("rebuild the member")


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"committed_index": 12}, "committed index was 12"),
        ({"covered_index": 12}, "needed the entries after 12"),
        ({"held_by_all_index": 12}, "entries up to 12"),
    ],
)
@pytest.mark.parametrize("rule", [RemovalRule.SIZE, RemovalRule.AGE, RemovalRule.FILLING_VOLUME])
def test_a_rule_does_not_explain_what_it_did_not_allow(
    logs: dict[str, Log], rule: RemovalRule, known: dict[str, object], reason: str
) -> None:
    begin = logs["n1"].first_index
    served = with_retention(explained(logs, "n1"), by_rule(0, begin - 1, rule, **known))

    summary = audited(logs, n1=served)

    assert found(summary) == [("removed", "n1", 0, begin - 1)]
    assert reason in summary.first_findings[0].detail
    assert rule in summary.first_findings[0].detail


def test_a_forced_removal_of_entries_that_a_voter_lacked_is_explained(
    logs: dict[str, Log],
) -> None:
    last = logs["n1"].first_index - 1
    forced = by_rule(0, last, RemovalRule.FORCE, held_by_all_index=3, is_forced=True)

    assert audited(logs, n1=with_retention(explained(logs, "n1"), forced)).findings == 0


def test_the_log_of_a_leader_explains_the_front_of_a_member_that_took_it(
    logs: dict[str, Log],
) -> None:
    taken = Removal(
        first_index=0, last_index=logs["n1"].first_index - 1, rule=RemovalRule.LEADER_LOG
    )

    assert audited(logs, n1=with_retention(explained(logs, "n1"), taken)).findings == 0


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (RemovalRule.EARLIER, "only its last 100 removals"),
        (RemovalRule.UNRECORDED, "earlier release or Java"),
    ],
)
def test_a_member_that_cannot_know_why_its_front_went_is_sound(
    logs: dict[str, Log], rule: RemovalRule, reason: str
) -> None:
    begin = logs["n1"].first_index
    served = with_retention(
        explained(logs, "n1"),
        Removal(first_index=0, last_index=9, rule=rule),
        by_rule(10, begin - 1),
    )

    summary = audited(logs, n1=served)

    assert found(summary) == [("unrecorded", "n1", 0, 9)]
    assert reason in summary.first_findings[0].detail
    assert summary.verdict is Verdict.SOUND


@pytest.mark.parametrize(
    ("kept", "lost"), [((), 0), ((20, 30), 31)], ids=["no-snapshot", "old-snapshots"]
)
def test_a_log_that_begins_beyond_all_snapshots_is_critical(
    logs: dict[str, Log], kept: tuple[int, ...], lost: int
) -> None:
    begin = logs["n0"].first_index
    served = with_retention(
        explained(logs, "n0"),
        by_rule(0, begin - 1, covered_index=begin),
        covered_index=-1,
        applied_index=399,
        snapshots=written(logs["n0"], *kept),
    )

    summary = audited(logs, n0=served)

    assert found(summary) == [("removed", "n0", lost, begin - 1)]
    assert "the state cannot be restored" in summary.first_findings[0].detail


@pytest.mark.parametrize("behind", [0, 1, 50])
def test_a_log_that_continues_a_snapshot_is_sound(logs: dict[str, Log], behind: int) -> None:
    begin = logs["n0"].first_index
    served = with_retention(
        explained(logs, "n0"),
        by_rule(0, begin - 1, covered_index=begin - 1 + behind),
        covered_index=begin - 1 + behind,
        applied_index=399,
        snapshots=written(logs["n0"], begin - 1 + behind, 390),
    )

    assert audited(logs, n0=served).findings == 0


@pytest.mark.parametrize("rule", [RemovalRule.SIZE, RemovalRule.FORCE])
def test_a_removal_of_what_the_oldest_snapshot_needs_is_critical(
    logs: dict[str, Log], rule: RemovalRule
) -> None:
    """The record says that the state needed nothing of it."""
    begin = logs["n0"].first_index
    served = with_retention(
        explained(logs, "n0"),
        by_rule(0, begin - 40, covered_index=begin - 40),
        by_rule(begin - 39, begin - 1, rule, covered_index=begin - 1),
        covered_index=begin - 30,
        applied_index=399,
        snapshots=written(logs["n0"], begin - 30, 390),
    )

    summary = audited(logs, n0=served)

    assert found(summary) == [("removed", "n0", begin - 29, begin - 1)]
    text = f"the oldest sound snapshot ends with entry {begin - 30}, and the state needs what"
    assert text in summary.first_findings[0].detail


@pytest.mark.parametrize("known", [{}, {"covered_index": None}])
def test_older_snapshots_are_no_fault_where_no_record_speaks_of_a_state(
    logs: dict[str, Log], known: dict[str, object]
) -> None:
    """A member that took its leader's log keeps its own older snapshots for a while."""
    begin = logs["n0"].first_index
    taken = Removal(first_index=0, last_index=begin - 1, rule=RemovalRule.LEADER_LOG)
    served = with_retention(
        explained(logs, "n0"),
        by_rule(0, begin - 1, **known) if known else taken,
        covered_index=10,
        applied_index=399,
        snapshots=written(logs["n0"], 10, 390),
    )

    assert audited(logs, n0=served).findings == 0


def test_a_member_that_heals_has_not_lost_what_it_has_yet_to_fetch(logs: dict[str, Log]) -> None:
    served = with_retention(explained(logs, "n0"), covered_index=-1)
    healing = replace(served, status=replace(served.status, storage=StorageState.HEALING))

    assert [f.check for f in audited(logs, n0=healing).first_findings] == ["not_counted"]


def test_a_log_that_is_replaced_while_it_is_asked_is_no_loss(logs: dict[str, Log]) -> None:
    """Its status is of the new log, and its record still of the old one."""
    torn = with_retention(explained(logs, "n1"))

    summary = local_audit(
        logs,
        {member: explained(logs, member) for member in logs} | {"n1": torn},
        later=[{"n1": explained(logs, "n1")}],
    )

    assert summary.findings == 0


def test_a_loss_that_a_member_tells_once_and_then_is_silent_leaves_the_audit_incomplete(
    logs: dict[str, Log],
) -> None:
    torn = with_retention(explained(logs, "n1"))

    summary = local_audit(
        logs,
        {member: explained(logs, member) for member in logs} | {"n1": torn},
        later=[{"n1": None}] * 2,
    )

    assert found(summary) == [("changed", "n1", 0, logs["n1"].first_index - 1)]
    assert "(removed)" in summary.first_findings[0].detail
    assert summary.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_a_member_that_restarts_counts_by_what_it_tells_in_both_lives(
    logs: dict[str, Log], before: bool, after: bool
) -> None:
    """An entry of n1 is damaged, so its new life is read once more."""
    damage.flip_body(logs["n1"], 399)
    sound = explained(logs, "n1")
    told = {
        life: replace(with_retention(sound) if is_lost else sound, life=life)
        for life, is_lost in (("first", before), ("second", after))
    }

    summary = local_audit(
        logs,
        {member: explained(logs, member) for member in logs} | {"n1": told["first"]},
        later=[{"n1": told["second"]}] * 2,
    )

    assert ("removed" in {check for check, *_ in found(summary)}) == (before and after)


def test_a_loss_that_shows_only_after_the_pass_waits_for_the_next_audit(
    logs: dict[str, Log],
) -> None:
    summary = local_audit(
        logs,
        {member: explained(logs, member) for member in logs},
        later=[{"n1": with_retention(explained(logs, "n1"))}],
    )

    assert summary.findings == 0


def test_what_is_removed_during_the_pass_is_explained_by_the_later_record(
    logs: dict[str, Log],
) -> None:
    first = {member: explained(logs, member) for member in logs}
    kept = {member: damage.remove_front(log, 1) for member, log in logs.items()}

    summary = local_audit(logs, first, later=[{member: explained(kept, member) for member in kept}])

    assert summary.findings == 0


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6)


@given(ranges=RANGES, begin=st.integers(-1, 60))
def test_exactly_the_entries_without_a_removal_are_unexplained(
    ranges: list[tuple[int, int]], begin: int
) -> None:
    """Also if the ranges overlap, are empty, or reach beyond the log's beginning."""
    told = retention([by_rule(first, last) for first, last in sorted(ranges)])

    named = [
        index
        for fault in faults(told, begin)
        for index in range(fault.first_index, fault.last_index + 1)
    ]

    recorded = {index for first, last in ranges for index in range(first, last + 1)}
    assert named == [index for index in range(begin) if index not in recorded]


@given(held=RANGES, asked=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_exactly_the_entries_that_nobody_holds_are_nowhere(
    held: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    ranges = nowhere(*asked, [Held(first=first, last=last) for first, last in held])

    named = [index for first, last in ranges for index in range(first, last + 1)]
    everywhere = {index for first, last in held for index in range(first, last + 1)}
    assert named == [i for i in range(asked[0], asked[1] + 1) if i not in everywhere]
