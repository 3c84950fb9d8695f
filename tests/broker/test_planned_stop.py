"""When a member that stops takes no further clients, and when it has answered all."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.draining.planned_stop import ANSWERED_S, PASS_ON_S, PlannedStop


class World:
    """A stop, and the parts that it closes."""

    def __init__(self, *, leads: bool) -> None:
        node = SimpleNamespace(known_peers={"n0": "a:1", "n1": "b:1", "n2": "c:1"})
        settings: Any = SimpleNamespace(node=node, group_address="service:10911", shares_port=False)
        self.now_s = asyncio.get_running_loop().time
        self.closed_s: list[float] = []
        self.stop = PlannedStop(settings, SimpleNamespace(leads=leads))

    async def run(self, after_the_pulls: float) -> float:
        """Run the stop; everything is answered so long after the held pulls. Return its time."""
        loop = asyncio.get_running_loop()

        async def close_pulls() -> None:
            self.stop.has_answered_all()  # before a request that is read between two slices
            loop.call_later(after_the_pulls, self.stop.has_answered_all)

        listeners: Any = SimpleNamespace(
            leave=lambda: None, close=lambda: self.closed_s.append(self.now_s())
        )
        requests: Any = SimpleNamespace(go_away=lambda: None)
        pulls: Any = SimpleNamespace(close=close_pulls)
        gate: Any = SimpleNamespace(everyone=tuple)
        begun_s = self.now_s()
        await self.stop.run(listeners, requests, pulls, gate)
        return self.now_s() - begun_s


@pytest.mark.parametrize("leads", [True, False])
async def test_only_a_member_that_leads_no_longer_goes_on_for_a_while(leads: bool) -> None:
    """A leader whose hand-over failed takes no messages, and nobody else can be elected."""
    world = World(leads=leads)
    begun_s = world.now_s()
    await world.run(0.0)

    assert (world.closed_s[0] - begun_s >= PASS_ON_S) is not leads


async def test_a_stop_waits_for_what_is_read_while_clients_are_sent_away() -> None:
    assert ANSWERED_S > await World(leads=True).run(0.5) >= 0.5
