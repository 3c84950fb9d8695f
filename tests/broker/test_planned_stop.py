"""When a member that stops takes no further clients behind a Service."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from dledger_broker.door.sending_away.planned_stop import PASS_ON_S, PlannedStop


@pytest.mark.parametrize("leads", [True, False])
async def test_only_a_member_that_leads_no_longer_goes_on_for_a_while(leads: bool) -> None:
    """A leader whose hand-over failed takes no messages, and nobody else can be elected."""
    node = SimpleNamespace(known_peers={"n0": "a:1", "n1": "b:1", "n2": "c:1"})
    settings: Any = SimpleNamespace(node=node, group_address="service:10911", shares_port=False)
    now_s = asyncio.get_running_loop().time
    closed_s: list[float] = []
    listeners: Any = SimpleNamespace(leave=lambda: None, close=lambda: closed_s.append(now_s()))
    requests: Any = SimpleNamespace(go_away=lambda: None)
    pulls: Any = SimpleNamespace(close=AsyncMock())
    gate: Any = SimpleNamespace(everyone=tuple)
    stop = PlannedStop(settings, SimpleNamespace(leads=leads))
    stop.has_answered_all()
    begun_s = now_s()
    await stop.run(listeners, requests, pulls, gate)

    assert (closed_s[0] - begun_s >= PASS_ON_S) is not leads
