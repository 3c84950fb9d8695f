"""A check that no turn of a member's event loop is long."""

from collections.abc import Iterable, Iterator
from typing import Final

from dledger_group.damaged import wait_until_level
from tools.groups.node_group import NodeGroup
from tools.groups.turns import TURN_S_MAX, TurnWatch

ROUNDS: Final = 3


def rounds_of_short_turns(
    group: NodeGroup, members: Iterable[str], bound_s: float = TURN_S_MAX
) -> Iterator[None]:
    """Repeat the body of a loop until it costs no member a turn that is too long.

    The bound is one of processor time. `TurnWatch` says which turns are strays. A request that is
    too expensive is so in each of the ROUNDS rounds; other load on a shared processor slows a turn
    down only for a moment. The members are level when a round begins. Otherwise a follower's turn
    for an earlier entry, perhaps one of the largest size, would count.

    Raises:
        AssertionError: A turn was too long in each round.
    """
    members, found = list(members), ""
    for _ in range(ROUNDS):
        wait_until_level(group)
        watch = TurnWatch(group, members)
        yield
        found = "; ".join(each.too_long for each in watch.turns(bound_s) if each.too_long)
        if not found:
            return
    raise AssertionError(f"in each of {ROUNDS} rounds: {found}")
