"""Every run of small groups, searched to the end; see `dledger_sim.exhaustive`."""

from collections.abc import Iterable

import pytest

from dledger_node.raft import quorum
from dledger_node.raft.membership import Membership, Promote, Remove
from dledger_sim.exhaustive import Scope, Search
from dledger_sim.violation import ViolationError

VISITS_MAX = 2_000_000
ONE_IS_REMOVED = Scope(
    member_count=2, terms_max=2, entries_max=2, heartbeat_rounds_max=1, candidates_max=2,
    changes=(Remove("n1"), Remove("n0")),
)  # fmt: skip
ONE_IS_PROMOTED = Scope(
    first=Membership(("n0", "n1"), ("n2",)), entries_max=2, heartbeat_rounds_max=1,
    candidates_max=1, flush_apart=False, changes=(Promote("n2"),),
)  # fmt: skip


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
    result = Search(scope).run(visits_max=VISITS_MAX)

    assert result.complete
    assert result.leaders_seen
    assert result.committed_max == scope.entries_max - 1, "all that is proposed can be committed"


@pytest.mark.simulation
@pytest.mark.parametrize("scope", [ONE_IS_REMOVED, ONE_IS_PROMOTED], ids=["removed", "promoted"])
def test_no_run_of_a_small_group_that_changes_breaks_a_rule(scope: Scope) -> None:
    result = Search(scope).run(visits_max=VISITS_MAX)

    assert result.complete
    assert result.changes_committed, "the change can be committed"


def test_a_search_finds_a_commit_by_too_few_of_a_changed_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(values: Iterable[int]) -> int:
        ranked = sorted(values)
        return ranked[len(ranked) // 2]

    monkeypatch.setattr(quorum, "reached_by_majority", half)

    with pytest.raises(ViolationError, match="committed is durable on a majority"):
        Search(ONE_IS_PROMOTED).run(visits_max=VISITS_MAX)


def test_a_search_finds_a_quorum_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "is_majority", lambda count, voter_count: 2 * count >= voter_count)
    scope = Scope(member_count=2, entries_max=1, heartbeat_rounds_max=1, candidates_max=2)

    with pytest.raises(ViolationError, match="one leader a term"):
        Search(scope).run(visits_max=VISITS_MAX)
