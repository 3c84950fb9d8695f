"""A client's stream of appends while leaders keep failing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from dledger_client.append.outcomes import Outcome
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_formats.log import disk
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

ROUNDS: Final = 4
PATIENCE_S: Final = 50.0


def kill_leader(group: NodeGroup) -> None:
    """Kill the leader with SIGKILL, wait for a new leader, and start the old one again."""
    leader = group.master()
    group.kill(leader)
    wait_for(lambda: group.master() != leader, "another member leads")
    group.start(leader)
    group.wait_until_up(leader)


def freeze_leader(group: NodeGroup) -> None:
    """Freeze the leader until another leads.

    Once thawed, it reads requests that the client has meanwhile sent to its successor.
    """
    leader = group.master()
    group.freeze(leader)
    others = [member for member in group.running() if member != leader]
    for member in others:
        group.wait_for_status(
            member, lambda view: view.leader_id in others, "follows another leader"
        )
    group.thaw(leader)
    group.wait_until_up(leader)


async def append_through(
    group: NodeGroup,
    fail: Callable[[NodeGroup], None],
    bodies: Sequence[bytes],
    *,
    idempotent: bool,
) -> list[Outcome]:
    """Append all bodies; make the leader fail after each fifth of the outcomes but the last."""
    outcomes: list[Outcome] = []
    failure: asyncio.Task[None] | None = None
    timing = Timing(deadline_s=PATIENCE_S, request_timeout_s=2.0)
    async with DLedgerClient(group.servers, "g", idempotent=idempotent, timing=timing) as client:
        await client.bounds()  # the client learns what its leader supports
        async for outcome in client.append_all(bodies, in_flight=512):
            outcomes.append(outcome)
            if len(outcomes) % (len(bodies) // (ROUNDS + 1)) == 0 and len(outcomes) < len(bodies):
                if failure is not None:
                    await failure
                failure = asyncio.create_task(asyncio.to_thread(fail, group))
        if failure is not None:
            await failure
    return outcomes


async def bodies_by_index(group: NodeGroup) -> dict[int, bytes]:
    """Return the bodies in the log by index, without no-ops and registrations."""
    async with DLedgerClient(group.servers, "g", timing=Timing(deadline_s=PATIENCE_S)) as client:
        end_index = (await client.bounds()).end_index
        return {
            entry.index: entry.body
            async for entry in client.get_range(0, end_index)
            if entry.magic == disk.NORMAL
        }
