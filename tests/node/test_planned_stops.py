"""Planned stops under load: every append has an outcome that its client knows.

`STOPS=50` stops more members.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster import members
from dledger_client.errors import ClientError, OutcomeUnknownError
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

STOPS = int(os.environ.get("STOPS", "4"))
CLIENTS = 4
IN_FLIGHT = 64


class Load:
    """Appends numbered bodies, `IN_FLIGHT` at a time for each client, until the block ends."""

    def __init__(self, *clients: DLedgerClient) -> None:
        self._clients = clients
        self._number = 0
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged: dict[int, bytes] = {}
        """The bodies by their indexes."""
        self.unknown: list[str] = []
        self.refused: list[str] = []

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._append(client))
            for client in self._clients
            for _ in range(IN_FLIGHT)
        ]
        await self.goes_on()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def goes_on(self) -> None:
        """Wait until more appends are acknowledged than may be in flight."""
        goal = len(self.acknowledged) + len(self._tasks)
        async with asyncio.timeout(60):
            while len(self.acknowledged) < goal:  # noqa: ASYNC110 - the client has no such event
                await asyncio.sleep(0.005)

    async def _append(self, client: DLedgerClient) -> None:
        while not self._stopping:
            body = b"%d" % self._number
            self._number += 1
            try:
                appended = await client.append(body)
            except OutcomeUnknownError as error:
                self.unknown.append(str(error))
            except ClientError as error:
                self.refused.append(str(error))
            else:
                self.acknowledged[appended.index] = body


def restart(group: NodeGroup, member: str) -> None:
    """Stop a member as Kubernetes does, and start it again."""
    assert group.stop(member) == 0
    group.start(member)
    group.wait_for_status(member, lambda status: status.ready, "is ready again")


async def stored(client: DLedgerClient) -> AsyncIterator[tuple[int, bytes]]:
    end_index = (await client.bounds()).end_index
    async for entry in client.get_range(0, end_index):
        yield entry.index, entry.body


@contextlib.asynccontextmanager
async def clients_of(group: NodeGroup) -> AsyncIterator[list[DLedgerClient]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(DLedgerClient(group.servers, "g"))
            for _ in range(CLIENTS)
        ]


async def assert_nothing_was_lost_or_written_twice(client: DLedgerClient, load: Load) -> None:
    bodies = [(index, body) async for index, body in stored(client) if body]
    log = dict(bodies)
    assert {index: log.get(index) for index in load.acknowledged} == load.acknowledged
    assert len(set(log.values())) == len(log), "a body was appended twice"


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_stopped_member_leaves_no_append_without_an_outcome(
    group: NodeGroup, role: str
) -> None:
    async with clients_of(group) as clients:
        async with Load(*clients) as load:
            for _ in range(STOPS):
                leader = await asyncio.to_thread(group.master)
                follower = next(member for member in group.peers if member != leader)
                await asyncio.to_thread(restart, group, leader if role == "leader" else follower)
                await load.goes_on()

        assert (load.unknown, load.refused) == ([], [])
        await assert_nothing_was_lost_or_written_twice(clients[0], load)


async def test_a_group_of_one_leaves_no_append_without_an_outcome(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1) as group:
        async with clients_of(group) as clients:
            async with Load(*clients) as load:
                for _ in range(STOPS):
                    await asyncio.to_thread(restart, group, "n0")
                    await load.goes_on()

            assert (load.unknown, load.refused) == ([], [])
            await assert_nothing_was_lost_or_written_twice(clients[0], load)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_client_behind_one_follower_learns_every_outcome(
    group: NodeGroup, role: str
) -> None:
    leader = await asyncio.to_thread(group.master)
    follower = next(member for member in group.peers if member != leader)
    address = group.settings(follower).address
    async with DLedgerClient([address], "g", follow_leader=False) as client:
        async with Load(client) as load:
            await asyncio.to_thread(restart, group, leader if role == "leader" else follower)
            await load.goes_on()

        assert load.unknown == []
        await assert_nothing_was_lost_or_written_twice(client, load)


async def test_a_client_of_an_earlier_release_still_loses_nothing(
    group: NodeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "TAKES_GO_AWAY_FLAG", 0)
    async with DLedgerClient(group.servers, "g") as client:
        async with Load(client) as load:
            leader = await asyncio.to_thread(group.master)
            await asyncio.to_thread(restart, group, leader)
            await load.goes_on()

        assert load.refused == []
        await assert_nothing_was_lost_or_written_twice(client, load)
