"""A check that no turn of a member's event loop is long."""

import contextlib
from collections.abc import Iterator

from dledger_group.damaged import wait_until_level
from tools.groups.node_group import NodeGroup
from tools.groups.turns import TURN_S_MAX, TurnWatch


@contextlib.contextmanager
def no_longer_turn(group: NodeGroup, member: str, bound_s: float = TURN_S_MAX) -> Iterator[None]:
    """Check that no turn of the member takes more processor time than this during the block.

    `TurnWatch` says which turns are strays. The members are level when the block begins. Otherwise
    a follower's turn for an entry that was appended before, of the largest size perhaps, would
    count.
    """
    wait_until_level(group)
    watch = TurnWatch(group, [member])
    yield
    for turns in watch.turns(bound_s):
        assert turns.too_long is None, turns.too_long
