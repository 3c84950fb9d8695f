"""Switchovers with operators that are killed at any request, and groups that change meanwhile.

The code is the operator's own; the API server and the members are fake. Whatever happens, each
switchover ends in time, its result is true, and no leader is asked for what cannot be done.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_kube.one_off_world import Operators
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.behaviors.handover.switchover import SwitchoverWorker

MEMBERS = ("n0", "n1", "n2")
TIMEOUT_S = 30.0
TURN_S = 0.5

kills = st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=5)
happenings = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(("crash", "return", "elect", "lag", "catch up", "refuse", "lose answer")),
        st.sampled_from(MEMBERS),
    ),
    max_size=6,
)


def happen(world: SwitchoverWorld, what: str, member_id: str) -> None:
    """Let something happen that the operator has not asked for."""
    if what == "crash":
        world.silent = {member_id}
        if world.leader == member_id:
            world.elect(next(each for each in MEMBERS if each != member_id))
    elif what == "return":
        world.silent.discard(member_id)
    elif what == "elect" and member_id not in world.silent:
        world.elect(member_id)
    elif what == "lag" and member_id != world.leader:
        world.lags = {member_id: 5000}
    elif what == "catch up":
        world.lags = {}
    elif what == "refuse":
        world.refuses_next = 1
    elif what == "lose answer":
        world.answers_lost = 1


async def take_turn(operators: Operators[SwitchoverWorker], world: SwitchoverWorld) -> None:
    """Let the operators take a turn, and check what leaders were asked for."""
    asked = len(world.transfers)
    leader, able = world.leader, set(filter(world.able, MEMBERS))

    def check() -> None:
        nonlocal asked, leader, able
        for _, asked_leader, to in world.transfers[asked:]:
            assert asked_leader == leader, "only the leader is asked"
            assert to in able, "nobody is asked to hand over to a member that cannot lead"
        asked, leader = len(world.transfers), world.leader
        able = set(filter(world.able, MEMBERS))

    await operators.turn(check)


@settings(max_examples=300)
@given(kills=kills, happenings=happenings, target=st.sampled_from(MEMBERS))
async def test_every_switchover_ends_in_time_with_a_true_result(
    kills: list[tuple[int, bool]], happenings: list[tuple[int, str, str]], target: str
) -> None:
    world = SwitchoverWorld(kills=kills)
    world.objects["move-uid"] = switchover_body(target=target, timeout=f"{TIMEOUT_S:g}s")
    operators = Operators[SwitchoverWorker](world)
    turn = 0
    while world.status("move-uid").get("phase") not in ("Succeeded", "Failed"):
        for at, what, member_id in happenings:
            if at == turn:
                happen(world, what, member_id)
        leader, in_service = world.leader, world.in_service
        await take_turn(operators, world)
        world.pass_time(TURN_S)
        turn += 1
        assert world.now_s < TIMEOUT_S + (len(kills) + 6) * (1.0 + TURN_S), "it ends in time"

    status = world.status("move-uid")
    reason = status["conditions"][0]["reason"]
    if status["phase"] == "Succeeded":
        assert (leader, in_service) == (target, target), "a success is one"
    elif reason != "TimedOut":
        assert not world.transfers, "what is refused was never begun"
    if reason == "AlreadyLeader":
        assert not world.transfers


@settings(max_examples=200)
@given(kills=kills)
async def test_an_operator_killed_at_any_request_changes_nothing_of_the_outcome(
    kills: list[tuple[int, bool]],
) -> None:
    world = SwitchoverWorld(kills=kills)
    world.objects["move-uid"] = switchover_body()
    operators = Operators[SwitchoverWorker](world)
    while world.status("move-uid").get("phase") not in ("Succeeded", "Failed"):
        await take_turn(operators, world)
        world.pass_time(TURN_S)

    status = world.status("move-uid")
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Succeeded", "SwitchedOver")
    assert status["from"] == "n1"
    assert [each[1:] for each in world.transfers] == [("n1", "n2")], "asked once"


@settings(max_examples=200)
@given(kills=kills, first=st.sampled_from(MEMBERS), second=st.sampled_from(MEMBERS))
async def test_two_switchovers_at_once_are_carried_out_one_after_the_other(
    kills: list[tuple[int, bool]], first: str, second: str
) -> None:
    world = SwitchoverWorld(kills=kills)
    world.objects["a-uid"] = switchover_body("a", target=first)
    world.objects["b-uid"] = switchover_body("b", target=second)
    operators, unfinished = Operators[SwitchoverWorker](world), True
    while unfinished:
        await take_turn(operators, world)
        world.pass_time(TURN_S)
        phases = [world.status(uid).get("phase") for uid in ("a-uid", "b-uid")]
        assert phases[0] == "Succeeded" or phases[1] in (None, "Pending"), "the second one waits"
        unfinished = phases != ["Succeeded", "Succeeded"]

    assert world.leader == second
    assert [to for _, _, to in world.transfers] == [
        to for before, to in (("n1", first), (first, second)) if before != to
    ]
