"""The repair plan of a member whose store is damaged; no files or sockets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.healing.repair_plan import (
    SET_ASIDE_MAX,
    DamagedMember,
    PeerReport,
    RepairAction,
    plan_repair,
)
from dledger_node.raft import quorum
from dledger_node.raft.ready import HardState

THREE = ("n0", "n1", "n2")
DAMAGED = DamagedMember(
    self_id="n0",
    peer_ids=THREE[1:],
    log_is_sound=False,
    log_is_empty=False,
    index_is_sound=True,
    hard_state=HardState(term=4, vote_for="n1"),
    set_aside_count=0,
)
LED = {
    each: PeerReport(leader_id="n1", term=5, joining=False, voters=THREE) for each in ("n1", "n2")
}


def test_a_damaged_member_joins_when_its_peers_have_a_leader() -> None:
    assert plan_repair(DAMAGED, LED).action is RepairAction.JOIN


def test_a_member_that_lost_its_vote_joins_with_its_log() -> None:
    forgot = replace(DAMAGED, log_is_sound=True, hard_state=None)

    assert plan_repair(forgot, LED).action is RepairAction.JOIN
    assert plan_repair(forgot, {}).action is RepairAction.STAY_OUT
    assert plan_repair(replace(forgot, log_is_empty=True), LED).action is RepairAction.STAY_OUT


def test_a_member_with_a_sound_log_needs_no_peers() -> None:
    sound = replace(DAMAGED, log_is_sound=True)

    assert plan_repair(sound, {}).action is RepairAction.REOPEN
    assert (
        plan_repair(replace(sound, index_is_sound=False), {}).action is RepairAction.REBUILD_INDEX
    )


def test_learners_do_not_count_towards_the_majority() -> None:
    voters = ("n1", "n2", "n3")
    reports = {each: replace(LED["n1"], voters=voters) for each in ("n1", "n4", "n5")}
    learner = replace(DAMAGED, peer_ids=("n1", "n2", "n3", "n4", "n5"))

    assert plan_repair(learner, reports).action is RepairAction.STAY_OUT
    assert plan_repair(learner, reports | {"n3": reports["n1"]}).action is RepairAction.JOIN


@pytest.mark.parametrize(
    ("member", "reports", "reason"),
    [
        (replace(DAMAGED, hard_state=None), LED, "its log and its term are both damaged"),
        (replace(DAMAGED, peer_ids=()), {}, "only member"),
        (
            replace(DAMAGED, hard_state=HardState(term=5, vote_for="n0", alone=True)),
            LED,
            "no member has led since",
        ),
        (replace(DAMAGED, set_aside_count=SET_ASIDE_MAX), LED, "its disk is failing"),
        (DAMAGED, {}, "n1 does not answer, n2 does not answer"),
        (DAMAGED, {"n1": LED["n1"]}, "n1 names n1 in term 5, n2 does not answer"),
        (
            DAMAGED,
            LED | {"n2": PeerReport(leader_id=None, term=5, joining=False, voters=THREE)},
            "n2 knows no leader in term 5",
        ),
        (
            DAMAGED,
            LED | {"n2": PeerReport(leader_id="n0", term=4, joining=False, voters=THREE)},
            "n2 names this member as the leader of term 4",
        ),
        (
            DAMAGED,
            LED | {"n2": PeerReport(leader_id="n1", term=5, joining=True, voters=THREE)},
            "n2 is joining the group itself",
        ),
        (
            replace(DAMAGED, peer_ids=("n1",)),
            {"n1": replace(LED["n1"], voters=("n0", "n1"))},
            "n1 names n1 in term 5",
        ),
    ],
)
def test_a_member_that_cannot_be_repaired_stays_out_with_a_reason(
    member: DamagedMember, reports: dict[str, PeerReport], reason: str
) -> None:
    plan = plan_repair(member, reports)

    assert plan.action is RepairAction.STAY_OUT
    assert reason in plan.reason


def test_a_former_only_member_joins_a_later_leader() -> None:
    was_alone = replace(DAMAGED, hard_state=HardState(term=4, vote_for="n0", alone=True))

    assert plan_repair(was_alone, LED).action is RepairAction.JOIN


MEMBERS = tuple(f"n{number}" for number in range(5))
REPORTS = st.builds(
    PeerReport,
    leader_id=st.sampled_from((*MEMBERS, None)),
    term=st.integers(1, 2),
    joining=st.booleans(),
    voters=st.sampled_from([MEMBERS[:count] for count in range(1, 6)] + [MEMBERS[1:]]),
)


@given(
    count=st.integers(1, 5),
    member=st.builds(
        DamagedMember,
        self_id=st.just("n0"),
        peer_ids=st.just(()),
        log_is_sound=st.booleans(),
        log_is_empty=st.booleans(),
        index_is_sound=st.booleans(),
        hard_state=st.none()
        | st.builds(
            HardState,
            term=st.integers(0, 2),
            vote_for=st.sampled_from((None, "n0", "n1")),
            joining=st.booleans(),
            alone=st.booleans(),
        ),
        set_aside_count=st.integers(0, SET_ASIDE_MAX + 1),
    ),
    reports=st.dictionaries(st.sampled_from(MEMBERS[1:]), REPORTS),
)
def test_a_member_joins_only_if_a_majority_of_voters_follows_a_leader(
    count: int, member: DamagedMember, reports: dict[str, PeerReport]
) -> None:
    member = replace(member, peer_ids=MEMBERS[1:count])

    plan = plan_repair(member, reports)

    assert bool(plan.reason) == (plan.action is RepairAction.STAY_OUT)
    if plan.action is not RepairAction.JOIN:
        return
    leaders = [
        report
        for each, report in reports.items()
        if report.leader_id == each in member.peer_ids and not report.joining
    ]
    assert any(
        quorum.is_majority(
            sum(
                (reports[each].leader_id, reports[each].term) == (leader.leader_id, leader.term)
                and not reports[each].joining
                for each in leader.voters
                if each in reports
            ),
            len(leader.voters),
        )
        for leader in leaders
    )
    assert member.hard_state is not None or (member.log_is_sound and not member.log_is_empty)
    assert member.set_aside_count < SET_ASIDE_MAX
