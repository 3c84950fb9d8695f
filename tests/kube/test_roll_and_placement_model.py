"""A roll and the placement of the leadership, as two loops that do not know of each other.

Both may move the leadership: the roll off a pod that it replaces, the placement off a node that is
being emptied. Whatever the state is and whichever comes first, they come to an end: every pod is
replaced, and nothing moves any more.
"""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dledger_operator.behaviors.handover.candidates import Candidate, Candidates
from dledger_operator.behaviors.handover.placement import (
    Decision,
    Move,
    Place,
    PlacementState,
    Stay,
    decide,
)
from dledger_operator.behaviors.rolls.roll_state import RollPod, RollState
from dledger_operator.behaviors.rolls.roll_steps import ReplacePod, next_step
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.observed_state import Leader
from dledger_operator.spec.preferred_leader import PreferredLeader

N0 = PreferredLeader(member_id="n0", node_labels={}, stable_for_s=60)


@dataclass(frozen=True)
class Member:
    """A healthy member."""

    behind: bool = False
    emptied: bool = False
    lag_entries: int = 0


@dataclass(slots=True)
class Group:
    """A group whose members have all been ready for long."""

    members: list[Member]
    leader: int
    preference: PreferredLeader | None = None
    halted: bool = False
    """Whether the roll takes no step, because a pod that it has replaced does not start."""
    transfers: int = 0

    def placement(self) -> Decision:
        """Return what the placement decides."""
        ids = [f"n{number}" for number in range(len(self.members))]
        told = dict(zip(ids, self.members, strict=True))
        candidates = [
            Candidate(
                member_id=each, pod=each, problem=None, lag_entries=member.lag_entries,
                behind=member.behind,
            )
            for each, member in told.items()
        ]  # fmt: skip
        places = {
            each: Place(
                node=f"node of {each}", known=True, emptied="cordoned" if member.emptied else "",
                preferred=self.preference is not None and each == "n0",
            )
            for each, member in told.items()
        }  # fmt: skip
        leader = Leader(term=1, member_id=ids[self.leader])
        return decide(
            PlacementState(
                candidates=Candidates(leader=leader, members=candidates, membership_changing=False),
                places=places,
                preference=self.preference,
                nodes_readable=True,
                able_s=dict.fromkeys(ids, 1000.0),
                rolling=any(member.behind for member in self.members),
                roll_halted=self.halted,
            )
        )

    def place(self) -> bool:
        """Move the leadership if the placement asks for it; tell whether it does."""
        decision = self.placement()
        if isinstance(decision, Move):
            self.hand_over(decision.to)
        return isinstance(decision, Move)

    def roll(self) -> bool:
        """Take the next step of the roll; tell whether there is one."""
        if self.halted:
            return False
        pods = [
            RollPod(
                name=f"p{number}", uid=f"u{number}", member_id=f"n{number}",
                behind="image" if member.behind else "", leaving=False, runs=True, healthy=True,
                blank=False, ready_s=60.0, lag_entries=member.lag_entries,
                emptied=member.emptied,
            )
            for number, member in enumerate(self.members)
        ]  # fmt: skip
        voters = frozenset(pod.member_id for pod in pods)
        step = next_step(
            RollState(
                pods=pods, leader_id=f"n{self.leader}", voters=voters, led=True, scaling=False
            )
        )
        assert not isinstance(step, Wait), step
        if isinstance(step, HandOver):
            self.hand_over(step.to)
        if isinstance(step, ReplacePod):
            assert step.pod != f"p{self.leader}"
            # The new pod is not put on a node that is being emptied.
            number = int(step.pod[1:])
            self.members[number] = replace(self.members[number], behind=False, emptied=False)
        return step is not None

    def hand_over(self, to: str) -> None:
        self.leader = int(to[1:])
        self.transfers += 1


members = st.builds(Member, st.booleans(), st.booleans(), st.integers(0, 20))
REPLACED = Member(emptied=True)


@settings(max_examples=1000)
@given(
    group=st.sampled_from((3, 5)).flatmap(
        lambda size: st.builds(
            Group,
            st.lists(members, min_size=size, max_size=size),
            st.integers(0, size - 1),
            st.sampled_from((None, N0)),
        )
    ),
    seed=st.integers(0, 1000),
)
@example(group=Group([REPLACED, REPLACED, Member(behind=True)], leader=2), seed=0)
def test_a_roll_and_the_placement_of_the_leader_end(group: Group, seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        loops = random.sample((group.place, group.roll), 2)
        if not any(loop() for loop in loops):
            break
    else:
        raise AssertionError(f"it goes on for ever: {group}")

    assert not any(member.behind for member in group.members)
    assert group.transfers <= 3
    decision, able = group.placement(), [each for each in group.members if not each.emptied]
    assert isinstance(decision, Stay) or (isinstance(decision, Wait) and decision.reason)
    assert not group.members[group.leader].emptied or not able


@settings(max_examples=500)
@given(
    group=st.builds(Group, st.lists(members, min_size=3, max_size=3), st.integers(0, 2)),
    halts=st.lists(st.integers(0, 20), max_size=4),
)
def test_a_leader_leaves_an_emptied_node_also_while_a_roll_is_halted(
    group: Group, halts: list[int]
) -> None:
    for turn in range(100):
        group.halted = turn in halts
        acts = [group.place(), group.roll()]
        if group.halted:
            able = [each for each in group.members if not each.emptied]
            assert not group.members[group.leader].emptied or not able
        elif not any(acts) and turn > max(halts, default=0):
            break
    else:
        raise AssertionError(f"it goes on for ever: {group}")

    assert not any(member.behind for member in group.members)
    assert group.transfers <= 3 + 2 * len(set(halts))


def test_a_leader_does_not_move_off_a_node_to_a_pod_that_a_roll_is_about_to_replace() -> None:
    decision = Group([REPLACED, REPLACED, Member(behind=True)], leader=0).placement()

    assert isinstance(decision, Wait)
    assert decision.reason == "RollUnderWay"
    assert decision.message == (
        "n0 leads on node node of n0, which is being emptied: cordoned; a roll is under way and "
        "replaces the pod of n2 first"
    )
