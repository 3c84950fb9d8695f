"""A preferred leader that fails again and again does not get the leadership back each time."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from dledger_kube.objects import NOW, leads, pod
from dledger_operator.behaviors.handover.candidates import Candidate, Candidates
from dledger_operator.behaviors.handover.placement import Move, Place, PlacementState, decide
from dledger_operator.behaviors.handover.settling import (
    LOSS_AGE_MAX,
    SETTLE_S_MAX,
    recent_losses,
    settle_s,
)
from dledger_operator.behaviors.leader.leader_history import CHANGES_MAX, LeaderHistory
from dledger_operator.behaviors.steps import Wait
from dledger_operator.observed_state import Leader, LeaderChange, Victory
from dledger_operator.spec.preferred_leader import PreferredLeader

DAY_S, TICK_S = 86_400, 5


def change(
    old: str, new: str, reason: str = "LeadershipTransferred", at: datetime = NOW
) -> LeaderChange:
    return LeaderChange(from_member=old, to_member=new, term=1, reason=reason, at=at)


def handed_over(proved_s: float) -> Victory:
    """What a member tells that the former leader has asked to stand."""
    return Victory(
        stood_because="TRANSFER",
        former_leader_id="n0",
        silent_s=0.0,
        election_s=0.01,
        proved_s=proved_s,
    )


class Flapping:
    """A group whose preferred leader n0 fails a while after it got the leadership."""

    def __init__(self, stable_for_s: float, fails_after_s: float, back_after_s: float) -> None:
        self.preference = PreferredLeader(member_id="n0", node_labels={}, stable_for_s=stable_for_s)
        self.fails_after_s, self.back_after_s = fails_after_s, back_after_s
        self.now_s, self.leader, self.since_s = 0.0, "n0", 0.0
        self.changes: tuple[LeaderChange, ...] = ()
        self.moves = 0

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.now_s)

    def state(self) -> PlacementState:
        able_s = self.now_s - self.since_s - self.back_after_s if self.leader == "n1" else 0.0
        members = [
            Candidate(member_id=each, pod=each, problem=None, lag_entries=0)
            for each in ("n0", "n1")
        ]
        return PlacementState(
            candidates=Candidates(
                leader=Leader(term=1, member_id=self.leader),
                members=members,
                membership_changing=False,
            ),
            places={each: Place(known=True, preferred=each == "n0") for each in ("n0", "n1")},
            preference=self.preference,
            nodes_readable=True,
            able_s={"n0": able_s},
            losses=recent_losses(self.changes, self.now),
        )

    def lead(self, member: str, reason: str) -> None:
        made = change(self.leader, member, reason, self.now)
        self.changes = (made, *self.changes)[:CHANGES_MAX]
        self.leader, self.since_s = member, self.now_s

    def run(self, seconds: float) -> None:
        """Let time pass, in which the member fails again and again."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += TICK_S
            if self.leader == "n0" and self.now_s - self.since_s >= self.fails_after_s:
                self.lead("n1", "LeaderLost")
            elif isinstance(decide(self.state()), Move):
                self.lead("n0", "LeadershipTransferred")
                self.moves += 1


@pytest.mark.parametrize("stable_for_s", [5, 60, 600])
@pytest.mark.parametrize("fails_after_s", [10, 90, 900])
def test_a_member_that_keeps_failing_gets_the_leadership_a_few_times_and_then_hourly_at_most(
    stable_for_s: float, fails_after_s: float
) -> None:
    group = Flapping(stable_for_s, fails_after_s, back_after_s=20)

    group.run(DAY_S)

    assert 1 <= group.moves <= 6 + DAY_S / SETTLE_S_MAX


def test_a_member_that_holds_the_leadership_for_hours_is_trusted_again() -> None:
    group = Flapping(60, 90, back_after_s=20)
    group.run(DAY_S)
    assert recent_losses(group.changes, group.now)["n0"] >= 3

    group.fails_after_s = float("inf")
    group.run(SETTLE_S_MAX + LOSS_AGE_MAX.total_seconds() + 60)

    assert group.leader == "n0"
    assert not recent_losses(group.changes, group.now)


@pytest.mark.parametrize(
    ("losses", "expected_s"), [(0, 60), (1, 240), (2, 960), (3, 3600), (1000, 3600)]
)
def test_each_loss_makes_the_time_four_times_as_long_up_to_an_hour(
    losses: int, expected_s: float
) -> None:
    assert settle_s(60, losses) == expected_s


def test_a_longer_time_in_the_spec_counts_as_it_is() -> None:
    assert settle_s(7200, 3) == 7200


def test_only_a_leadership_that_was_lost_lately_and_not_handed_over_counts() -> None:
    changes = [
        change("n0", "n1", "LeaderLost"),
        change("n0", "n1", "LeaderSteppedDown"),
        change("n0", "n1", "PodReplaced"),
        change("n0", "n1", "LeadershipTransferred"),
        change("n2", "n0", "LeaderLost"),
        change("", "n0", "FirstLeader"),
        change("n0", "n1", "LeaderLost", NOW - LOSS_AGE_MAX),
    ]

    assert recent_losses(changes, NOW) == {"n0": 3, "n2": 1}


def test_a_preferred_leader_that_is_drained_again_and_again_waits_no_longer() -> None:
    """Each time it hands over to n1 as its pod ends, and gets the leadership back."""
    history = LeaderHistory([])
    history.proven(0.0, NOW, Leader(term=1, member_id="n0"))
    for term in (2, 4, 6):
        away, back = (Leader(term=term + later, member_id=f"n{1 - later}") for later in (0, 1))
        history.observe(term, [leads(0, term - 1)], [pod(0, leaving=True), pod(1)])
        history.proven(term, NOW, away, handed_over(term))
        history.proven(term + 0.5, NOW, back, handed_over(term + 0.5))

    losses = recent_losses(history.changes, NOW)["n0"]

    assert settle_s(60, losses) == 60


def test_the_group_says_why_a_preferred_leader_waits_longer() -> None:
    state = Flapping(60, 90, back_after_s=20).state()
    led_by_n1 = replace(state.candidates, leader=Leader(term=1, member_id="n1"))

    decision = decide(replace(state, candidates=led_by_n1, losses={"n0": 1}, able_s={"n0": 200}))

    assert isinstance(decision, Wait)
    assert decision.message.endswith(
        "n0 gets the leadership once it has been able to lead for 240 s: it has lately lost it 1 "
        "time"
    )
