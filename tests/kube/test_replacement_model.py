"""Replacements with operators that are killed at any request, and groups that change meanwhile.

The code is the operator's own; the API server, the controllers and the members are fake. Whatever
happens, only the claim of the lost member is deleted, once, and only while a majority of the others
is whole.
"""

from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_kube.objects import NOW
from dledger_kube.one_off_world import Operators
from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_operator.behaviors.replacement.replacement import ReplaceWorker

MEMBERS = tuple(f"n{ordinal}" for ordinal in range(5))
TIMEOUT_S = 120.0
TURN_S = 0.5
AWAY_S = 100.0
"""Some times of absence make a replacement late, and others only shorten what is left."""

kills = st.lists(st.tuples(st.integers(1, 120), st.booleans()), max_size=6)
happenings = st.lists(
    st.tuples(
        st.one_of(st.just(0), st.integers(0, 4), st.integers(0, 60)),
        st.sampled_from(
            ("crash", "crash", "empty", "lag", "elect", "node dies", "change", "return", "catch up",
             "node is fenced", "settle", "operator away")
        ),
        st.sampled_from(MEMBERS),
    ),
    max_size=8,
)  # fmt: skip
# Most of the time the member that is lost is the one that is to be replaced.
losses = st.one_of(
    st.sampled_from(MEMBERS[:3]).map(lambda each: (each, each)),
    st.tuples(st.sampled_from(MEMBERS), st.sampled_from(MEMBERS)),
)


def happen(world: ReplaceWorld, what: str, member_id: str) -> None:
    """Let something happen that the operator has not asked for."""
    if what == "operator away":
        world.pass_time(AWAY_S)
    member = world.members.get(member_id)
    if member is None:
        return
    if what == "crash":
        member.alive = False
    elif what == "empty":
        member.whole = False
    elif what == "return":
        member.alive = True
    elif what == "lag" and member_id != world.leader:
        member.lags = 5
    elif what == "catch up":
        member.lags = 0
    elif what == "elect" and member in world.whole():
        world.leader = member_id
    elif what == "node dies":
        member.node_dead, member.alive = True, False
    elif what == "node is fenced":
        member.node_dead = False
    elif what in ("change", "settle"):
        world.changing = what == "change"


def claims(world: ReplaceWorld) -> dict[str, str]:
    return {each.id: each.claim_uid for each in world.members.values()}


@settings(max_examples=300)
@given(
    kills=kills,
    happenings=happenings,
    count=st.sampled_from((1, 3, 3, 5)),
    loss=losses,
)
async def test_only_a_lost_member_s_claim_is_deleted_once_and_while_the_others_are_whole(
    kills: list[tuple[int, bool]],
    happenings: list[tuple[int, str, str]],
    count: int,
    loss: tuple[str, str],
) -> None:
    lost, target = loss
    world = ReplaceWorld.of(count, kills=kills)
    if lost in world.members:
        world.members[lost].lose()
    world.objects["renew-uid"] = replace_body(member=target, timeout=f"{TIMEOUT_S:g}s")
    operators, before, turn = Operators[ReplaceWorker](world), claims(world), 0
    while not world.ended("renew-uid"):
        for at, what, member_id in happenings:
            if at == turn:
                happen(world, what, member_id)
        await operators.turn()
        world.pass_time(TURN_S)
        turn += 1
        away_s = AWAY_S * sum(what == "operator away" for _, what, _ in happenings)
        assert world.now_s < TIMEOUT_S + away_s + (len(kills) + 4) * (1.0 + TURN_S), "it ends"

    phase, reason = world.outcome("renew-uid")
    changed = {each for each, uid in claims(world).items() if uid != before[each]}
    assert world.deleted in ([], [before.get(target)]), "only the recorded claim, and once"
    assert all(each.may_go for each in world.deletions), "a majority was whole without the member"
    begun = datetime.fromisoformat(world.status("renew-uid")["startedAt"])
    removals_s = [each.at_s - (begun - NOW).total_seconds() for each in world.deletions]
    assert all(each < TIMEOUT_S for each in removals_s), "nothing is removed after the time"
    assert changed <= {target}, "no other member has another volume"
    if phase == "Succeeded":
        assert changed == {target}
    elif reason != "TimedOut":
        assert not world.deleted, "what is refused was never begun"


@settings(max_examples=200)
@given(kills=kills)
async def test_an_operator_killed_at_any_request_changes_nothing_of_the_outcome(
    kills: list[tuple[int, bool]],
) -> None:
    world = ReplaceWorld(kills=kills)
    world.members["n2"].lose()
    world.objects["renew-uid"] = replace_body()
    operators = Operators[ReplaceWorker](world)
    while not world.ended("renew-uid"):
        await operators.turn()
        world.pass_time(TURN_S)

    status = world.status("renew-uid")
    assert world.outcome("renew-uid") == ("Succeeded", "Replaced")
    assert (status["volume"], status["newVolume"]) == ("pv-2-0", "pv-2-1")
    assert world.deleted == ["claim-2-0"], "deleted once"
    assert len(world.whole()) == 3


@settings(max_examples=100)
@given(kills=kills)
async def test_two_lost_members_of_five_get_new_volumes_although_each_waits_for_the_other(
    kills: list[tuple[int, bool]],
) -> None:
    world = ReplaceWorld.of(5, kills=kills)
    for name, member in (("a", "n3"), ("b", "n4")):
        world.members[member].lose()
        world.objects[f"{name}-uid"] = replace_body(name, member=member)
    operators = Operators[ReplaceWorker](world)
    while not (world.ended("a-uid") and world.ended("b-uid")):
        await operators.turn()
        world.pass_time(TURN_S)

    assert world.outcome("a-uid") == world.outcome("b-uid") == ("Succeeded", "Replaced")
    assert world.deleted == ["claim-3-0", "claim-4-0"]
