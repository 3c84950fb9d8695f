"""Batches sent while leaders fail: the outcome of each body is correct."""

from collections import Counter
from collections.abc import Callable

import pytest

from dledger_client.append.outcomes import Acknowledged, Unknown
from dledger_group.failing import append_through, bodies_by_index, freeze_leader, kill_leader
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

BODIES = [b"body %d" % number for number in range(100_000)]


@pytest.mark.parametrize("fail", [kill_leader, freeze_leader])
async def test_no_acknowledged_body_is_lost_moved_or_doubled_while_leaders_fail(
    group: NodeGroup, fail: Callable[[NodeGroup], None]
) -> None:
    group.master()

    outcomes = await append_through(group, fail, BODIES, idempotent=False)

    assert [outcome.number for outcome in outcomes] == list(range(len(BODIES)))
    acknowledged = [outcome for outcome in outcomes if isinstance(outcome, Acknowledged)]
    unknown = {BODIES[outcome.number] for outcome in outcomes if isinstance(outcome, Unknown)}
    assert len(acknowledged) + len(unknown) == len(BODIES), "no body is refused"
    held = await bodies_by_index(group)
    assert [held.get(outcome.index) for outcome in acknowledged] == [
        BODIES[outcome.number] for outcome in acknowledged
    ]
    assert max(Counter(held.values()).values()) == 1
    others = set(held.values()) - {BODIES[outcome.number] for outcome in acknowledged}
    assert others <= unknown, "what is there besides was not called refused, nor never sent"
