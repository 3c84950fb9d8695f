"""Exhaustive searches of small groups; see `dledger_sim.search.exhaustive`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from dledger_node.raft import core, entry_handler, quorum, recalling
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Follower, MemberState
from dledger_node.raft.membership import Membership, Promote, Remove
from dledger_node.raft.ready import HardState, Ready
from dledger_node.raft.recovered import recovered
from dledger_sim.judges.violation import ViolationError
from dledger_sim.search.exhaustive import Search
from dledger_sim.search.result import Limits
from dledger_sim.search.scope import Scope

LIMITS = Limits(visits_max=2_000_000)
ONE_IS_REMOVED = Scope(
    member_count=2, terms_max=2, entries_max=2, heartbeat_rounds_max=1, candidates_max=2,
    changes=(Remove("n1"), Remove("n0")),
)  # fmt: skip
ONE_IS_PROMOTED = Scope(
    first=Membership(("n0", "n1"), ("n2",)), entries_max=2, heartbeat_rounds_max=1,
    candidates_max=1, flush_apart=False, changes=(Promote("n2"),),
)  # fmt: skip
ONE_CRASHES = Scope(
    entries_max=1, heartbeat_rounds_max=1, candidates_max=2, flush_apart=False, crashes_max=1,
)  # fmt: skip

ONE_IS_A_STRANGER = Scope(
    entries_max=2, heartbeat_rounds_max=2, candidates_max=1, flush_apart=False, stranger_entries=2
)


@pytest.mark.simulation
@pytest.mark.parametrize(
    "scope",
    [
        Scope(member_count=3, entries_max=1, heartbeat_rounds_max=1, candidates_max=3),
        Scope(member_count=2, entries_max=2, heartbeat_rounds_max=2, candidates_max=2),
        Scope(entries_max=2, heartbeat_rounds_max=1, candidates_max=1, flush_apart=False),
    ],
    ids=["three-members-one-entry", "two-members-two-entries", "three-members-two-entries"],
)
def test_no_run_of_a_small_group_breaks_a_rule(scope: Scope) -> None:
    result = Search(scope).run(LIMITS)

    assert result.complete
    assert result.leaders_seen
    assert result.committed_max == scope.entries_max - 1, "every entry can be committed"


@pytest.mark.simulation
def test_no_run_counts_on_a_member_with_a_longer_log_of_another_group() -> None:
    result = Search(ONE_IS_A_STRANGER).run(LIMITS)

    assert result.complete
    assert result.committed_max == ONE_IS_A_STRANGER.entries_max - 1, "the two others commit"


def test_the_search_finds_a_confirmation_of_what_only_another_group_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trusting(member: MemberState, follower: Follower) -> int:
        return min(member.durable_index, follower.verified_index)

    monkeypatch.setattr(entry_handler, "confirmed_index", trusting)

    with pytest.raises(ViolationError, match="a committed entry is durable on a majority"):
        Search(ONE_IS_A_STRANGER).run(LIMITS)


@pytest.mark.simulation
@pytest.mark.parametrize("scope", [ONE_IS_REMOVED, ONE_IS_PROMOTED], ids=["removed", "promoted"])
def test_no_run_of_a_small_group_with_a_membership_change_breaks_a_rule(scope: Scope) -> None:
    result = Search(scope).run(LIMITS)

    assert result.complete
    assert result.changes_committed, "the change can be committed"


@pytest.mark.simulation
@pytest.mark.parametrize(
    "scope",
    [
        Scope(
            member_count=2, terms_max=2, entries_max=2, heartbeat_rounds_max=1, candidates_max=2,
            crashes_max=1,
        ),
        Scope(
            member_count=2, entries_max=2, heartbeat_rounds_max=1, candidates_max=2, crashes_max=2,
        ),
        Scope(entries_max=1, heartbeat_rounds_max=1, candidates_max=3, crashes_max=1),
        replace(ONE_CRASHES, entries_max=2, candidates_max=1),
        replace(ONE_CRASHES, recalls=True, candidates_max=1),
        Scope(
            member_count=2, entries_max=2, heartbeat_rounds_max=1, candidates_max=2,
            crashes_max=1, recalls=True,
        ),
    ],
    ids=["two-members-two-terms", "two-members-two-crashes", "three-members-one-entry",
         "three-members-two-entries", "three-members-that-ask", "two-members-that-ask"],
)  # fmt: skip
def test_no_run_of_a_small_group_with_crashes_breaks_a_rule(scope: Scope) -> None:
    result = Search(scope).run(LIMITS)

    assert result.complete
    assert result.crashed_count, "members crash"
    assert result.committed_max >= scope.entries_max - 1, "every entry can be committed"


def test_the_search_finds_a_member_that_forgets_its_vote_at_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(*arguments: Any) -> MemberState:
        member = recovered(*arguments)
        member.vote_for = None
        return member

    monkeypatch.setattr(core, "recovered", forgetful)

    with pytest.raises(ViolationError, match="one leader per term"):
        Search(ONE_CRASHES).run(LIMITS)


def test_the_search_finds_a_vote_that_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    unsaved = MemberState.hard_state_to_save

    def without_vote(member: MemberState, saved: HardState) -> HardState | None:
        state = unsaved(member, saved)
        return None if state is None or state.term == saved.term else replace(state, vote_for=None)

    monkeypatch.setattr(MemberState, "hard_state_to_save", without_vote)

    with pytest.raises(ViolationError, match="one leader per term"):
        Search(ONE_CRASHES).run(LIMITS)


def test_the_search_finds_a_message_that_is_sent_before_its_term_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready_in_order = Raft.ready

    def told_first(raft: Raft) -> Ready | None:
        ready = ready_in_order(raft)
        if ready is not None and ready.hard_state is not None and ready.messages:
            raft._ready = ready = replace(ready, hard_state=None)
        return ready

    monkeypatch.setattr(Raft, "ready", told_first)

    with pytest.raises(ViolationError, match="a promise is durable before it is sent"):
        Search(ONE_CRASHES).run(LIMITS)


def test_the_search_finds_a_crash_between_a_vote_and_its_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready_in_order = Raft.ready

    def vote_saved_last(raft: Raft) -> Ready | None:
        saved, ready = raft._saved_hard_state, ready_in_order(raft)
        if ready is not None and ready.hard_state is not None and ready.messages:
            only_vote = ready.hard_state.term == saved.term
            raft._ready = ready = replace(ready, hard_state=None) if only_vote else ready
        return ready

    monkeypatch.setattr(Raft, "ready", vote_saved_last)

    with pytest.raises(ViolationError, match="one leader per term"):
        Search(replace(ONE_CRASHES, candidates_max=3)).run(LIMITS)


def test_the_search_finds_a_member_that_loses_the_end_of_its_log_at_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shortened(*arguments: Any) -> MemberState:
        member = recovered(*arguments)
        if member.log.end_index > member.committed_index:
            member.log.truncate(member.log.end_index)
            member.durable_index = member.log.end_index
        return member

    monkeypatch.setattr(core, "recovered", shortened)

    with pytest.raises(ViolationError, match="a committed entry is durable on a majority"):
        Search(ONE_CRASHES).run(LIMITS)


def test_the_search_describes_the_path_to_a_broken_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum, "is_majority", lambda count, voter_count: 2 * count >= voter_count)
    scope = Scope(member_count=2, entries_max=1, heartbeat_rounds_max=1, candidates_max=2)

    with pytest.raises(ViolationError, match=r"one leader per term: .*\n  n\d times out: "):
        Search(scope, keeps_ways=True).run(LIMITS)


def test_the_search_finds_a_confirmation_before_the_entry_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def written(member: MemberState, follower: Follower) -> int:
        return follower.verified_index

    monkeypatch.setattr(entry_handler, "confirmed_index", written)

    with pytest.raises(ViolationError, match="a promise is durable before it is sent"):
        Search(replace(ONE_CRASHES, flush_apart=True)).run(LIMITS)


def test_the_search_finds_an_intact_disk_that_is_treated_as_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        recalling, "_is_older", lambda member, _, mark: mark.index >= member.log.end_index
    )

    with pytest.raises(ViolationError, match="an intact disk is not treated as rolled back"):
        Search(replace(ONE_CRASHES, recalls=True)).run(LIMITS)


def test_the_search_finds_a_commit_without_a_majority_of_a_changed_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(values: Iterable[int]) -> int:
        ranked = sorted(values)
        return ranked[len(ranked) // 2]

    monkeypatch.setattr(quorum, "reached_by_majority", half)

    with pytest.raises(ViolationError, match="a committed entry is durable on a majority"):
        Search(ONE_IS_PROMOTED).run(LIMITS)


def test_the_search_finds_an_election_by_half_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum, "is_majority", lambda count, voter_count: 2 * count >= voter_count)
    scope = Scope(member_count=2, entries_max=1, heartbeat_rounds_max=1, candidates_max=2)

    with pytest.raises(ViolationError, match="one leader per term"):
        Search(scope).run(LIMITS)
