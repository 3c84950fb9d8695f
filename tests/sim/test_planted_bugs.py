"""Proof that the simulator bites: each of these bugs must be found within a few seeds.

Most are bugs that real systems shipped; `DLedger` marks those of the original.
"""

from collections.abc import Callable, Iterable

import pytest

from dledger_node.raft import entry_handler, entry_pusher, leader_elector, quorum, steps
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Follower, Leader, MemberState, PreCandidate
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    Message,
    VoteResult,
)
from dledger_node.raft.ready import HardState
from dledger_sim.conditions import Conditions
from dledger_sim.disk import Keep
from dledger_sim.simulation import simulate
from dledger_sim.violation import ViolationError

EVENT_COUNT = 1500
SHORT_REIGNS = Conditions(
    heartbeat_ticks=1,
    election_ticks=4,
    push_entries_max=1,
    inflight_ranges_max=1,
    proposal_interval_us=20_000,
    proposal_entries_max=1,
    loss=0.1,
    delay_us=2_000,
    flush_us=100,
    keep=Keep.EVERYTHING,
    strike_interval_us=60_000,
    leader_bias=0.9,
    ambush=0.9,
    faults=("crash", "isolate"),
)
SEED_COUNT_MAX = 150

Plant = Callable[[pytest.MonkeyPatch], None]


def a_vote_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    """DLedger saves it without fsync and ignores errors."""
    saved_term = Raft._unsaved_hard_state

    def only_with_a_new_term(core: Raft) -> HardState | None:
        return saved_term(core) if core._member.term != core._saved_hard_state.term else None

    patch.setattr(Raft, "_unsaved_hard_state", only_with_a_new_term)


def a_vote_ignores_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_elector, "_judge_log", lambda member, request: VoteResult.ACCEPT)


def a_candidate_stands_again_in_the_same_term(patch: pytest.MonkeyPatch) -> None:
    """DLedger, in the first round after a restart."""
    campaign = leader_elector.campaign

    def again(member: MemberState) -> None:
        if isinstance(member.part, PreCandidate) and member.vote_for == member.self_id:
            member.term -= 1
        campaign(member)

    patch.setattr(leader_elector, "campaign", again)


def a_quorum_is_one_short(patch: pytest.MonkeyPatch) -> None:
    def reached(values: Iterable[int]) -> int:
        ranked = sorted(values)
        return ranked[min(len(ranked) - 1, len(ranked) - len(ranked) // 2)]

    patch.setattr(quorum, "reached_by_majority", reached)
    patch.setattr(quorum, "is_majority", lambda count, voters: 2 * count > voters - 2)


def an_older_term_is_committed_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Raft paper, figure 8; DLedger 0.3."""

    def advance(member: MemberState, leader: Leader) -> None:
        matched = [progress.match_index for progress in leader.progress.values()]
        member.commit(quorum.reached_by_majority([member.durable_index, *matched]))

    patch.setattr(entry_pusher, "advance_commit", advance)


def a_leader_counts_what_it_has_not_flushed(patch: pytest.MonkeyPatch) -> None:
    """DLedger, all versions."""

    def advance(member: MemberState, leader: Leader) -> None:
        matched = [progress.match_index for progress in leader.progress.values()]
        index = quorum.reached_by_majority([member.log.end_index, *matched])
        if index > member.committed_index and member.log.holds(index, member.term):
            member.commit(index)

    patch.setattr(entry_pusher, "advance_commit", advance)


def a_follower_confirms_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """DLedger, all versions."""
    patch.setattr(
        entry_handler, "confirmed_index", lambda member, follower: follower.verified_index
    )


def a_follower_confirms_its_own_tail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry_handler, "confirmed_index", lambda member, follower: member.durable_index)


def a_follower_commits_its_own_tail(patch: pytest.MonkeyPatch) -> None:
    """DLedger: min(own end, the leader's committed index)."""

    def commit(member: MemberState, follower: Follower, leader_committed_index: int) -> None:
        member.commit(min(leader_committed_index, member.log.end_index))

    patch.setattr(entry_handler, "commit_verified", commit)


def the_entry_before_a_push_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    handle = entry_handler.handle_append

    def unchecked(member: MemberState, follower: Follower, request: AppendRequest) -> None:
        if request.previous_index <= member.log.end_index:
            term_here = member.log.term_at(request.previous_index)
            object.__setattr__(request, "previous_term", term_here)
        handle(member, follower, request)

    patch.setattr(entry_handler, "handle_append", unchecked)


def a_compared_tail_is_truncated(patch: pytest.MonkeyPatch) -> None:
    """DLedger's TRUNCATE: what lies behind the compared entry goes, committed or not."""
    handle = entry_handler.handle_compare

    def truncating(member: MemberState, follower: Follower, request: CompareRequest) -> None:
        handle(member, follower, request)
        if member.log.holds(request.index, request.index_term):
            member.committed_index = min(member.committed_index, request.index)
            follower.verified_index = request.index
            if request.index < member.log.end_index:
                member.truncate(request.index + 1)

    patch.setattr(entry_handler, "handle_compare", truncating)


def a_deposed_leader_is_obeyed(patch: pytest.MonkeyPatch) -> None:
    """DLedger checks neither term nor leader of a push."""
    step = steps.step

    def believing(member: MemberState, message: Message) -> None:
        pushes = (AppendRequest, CompareRequest, HeartBeatRequest)
        if isinstance(message, pushes) and isinstance(member.part, Follower):
            object.__setattr__(message, "term", max(message.term, member.term))
            member.part.leader_id = message.sender
        step(member, message)

    patch.setattr(steps, "step", believing)


PLANTS: tuple[Plant, ...] = (
    a_vote_is_not_saved,
    a_vote_ignores_the_log,
    a_candidate_stands_again_in_the_same_term,
    a_quorum_is_one_short,
    a_leader_counts_what_it_has_not_flushed,
    a_follower_confirms_before_the_flush,
    a_follower_confirms_its_own_tail,
    a_follower_commits_its_own_tail,
    the_entry_before_a_push_is_not_checked,
    a_compared_tail_is_truncated,
    a_deposed_leader_is_obeyed,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    with pytest.raises(ViolationError):
        _search(None)


def test_counting_older_terms_is_found_where_reigns_are_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    an_older_term_is_committed_by_counting(monkeypatch)

    with pytest.raises(ViolationError):
        _search(SHORT_REIGNS)


def test_nothing_is_found_where_nothing_is_planted() -> None:
    for seed in range(SEED_COUNT_MAX // 3):
        simulate(seed, EVENT_COUNT, conditions=SHORT_REIGNS)


def _search(conditions: Conditions | None) -> None:
    for seed in range(SEED_COUNT_MAX):
        simulate(seed, EVENT_COUNT, conditions=conditions, settle=False)
