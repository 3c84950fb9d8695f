"""An idempotent client that retries while members fail: each body is in the log exactly once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_group.failing import (
    PATIENCE_S,
    append_through,
    bodies_by_index,
    freeze_leader,
    kill_leader,
)
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

BODIES = [b"body %d" % number for number in range(20_000)]


@pytest.mark.parametrize("fail", [kill_leader, freeze_leader])
async def test_through_failing_leaders_every_body_is_in_the_log_exactly_once(
    group: NodeGroup, fail: Callable[[NodeGroup], None]
) -> None:
    group.master()

    outcomes = await append_through(group, fail, BODIES, idempotent=True)

    assert Counter(type(outcome) for outcome in outcomes) == {Acknowledged: len(BODIES)}
    held = await bodies_by_index(group)
    assert len(held) == len(BODIES), "a body is there twice, or not at all"
    assert [held[outcome.index] for outcome in outcomes] == BODIES  # type: ignore[union-attr]


async def test_a_client_goes_on_through_a_restart_of_all_members(tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group:
        group.master()
        timing = Timing(deadline_s=PATIENCE_S)
        async with DLedgerClient(group.servers, "g", idempotent=True, timing=timing) as client:
            before = await client.append(b"before")
            for member in group.running():
                group.kill(member)
            for member in group.peers:
                group.start(member)
            after = await client.append_batch([b"after"] * 100)

        assert {type(outcome) for outcome in after} == {Acknowledged}
        held = await bodies_by_index(group)
        assert held[before.index] == b"before"
        assert sorted(held.values()) == [b"after"] * 100 + [b"before"]
        for member in group.peers:
            group.wait_until_up(member)
        wait_for(
            lambda: all(
                b"dledger_node_producers 1.0" in group.get(member, "/metrics")[1]
                for member in group.running()
            ),
            "every member remembers the one producer",
        )
