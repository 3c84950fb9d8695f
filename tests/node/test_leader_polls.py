"""Waits for another leader: none may miss a change, however early it comes."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import cast

from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from dledger_formats.http.status import LeaderView, StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.http import pages
from dledger_node.http.outage import Outage
from dledger_node.http.request_turns import PER_TURN
from dledger_node.shell.current_source import CurrentSource
from dledger_node.shell.leader_watch import LeaderWatch
from dledger_node.shell.live_settings import LiveSettings
from dledger_node.shell.view import MemberView
from dledger_sim.stage.driver import CoreDriver, heartbeat

PATIENCE_S = 20.0


SETTINGS = NodeSettings(
    group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/nowhere"
)


class ShownMember:
    """A member in service, as far as long polls need it."""

    def __init__(self) -> None:
        self.driver = CoreDriver(term=3)
        self.leader_watch = LeaderWatch(self.driver.raft)
        self.view = cast("MemberView", self)
        self.live = LiveSettings(SETTINGS)
        self.identity = SimpleNamespace(value="an-identity")

    def leader_view(self) -> object:
        return MemberView.leader_view(cast("MemberView", self))

    async def leader_changed(self, token: str) -> None:
        await self.leader_watch.leader_changed(token)

    @property
    def core(self) -> object:
        return self.driver.raft

    def hear_leader(self, term: int) -> None:
        self.driver.receive(heartbeat(term))
        self.leader_watch.on_turn(-1)


def out_of_service() -> Outage:
    return Outage(SETTINGS, "1", state=StorageState.FULL, reason="full")


async def test_a_change_in_the_turn_in_which_a_wait_begins_ends_it() -> None:
    member = ShownMember()
    shown = CurrentSource(member.view)
    waits = asyncio.create_task(shown.leader_changed(shown.leader_view().token))
    member.hear_leader(3)  # the task has not begun to run

    await asyncio.wait_for(waits, PATIENCE_S)


async def test_every_change_ends_a_wait_at_whichever_step_of_its_beginning_it_comes() -> None:
    for steps in range(6):
        member = ShownMember()
        shown = CurrentSource(member.view)
        waits = asyncio.create_task(shown.leader_changed(shown.leader_view().token))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not waits.done()
        member.hear_leader(3)

        await asyncio.wait_for(waits, PATIENCE_S)


async def test_a_change_that_leaves_the_token_does_not_end_a_wait() -> None:
    member = ShownMember()
    waits = asyncio.create_task(member.leader_watch.leader_changed("3:"))
    member.leader_watch._leader_changed.set()
    member.leader_watch._leader_changed = asyncio.Event()
    for _ in range(10):
        await asyncio.sleep(0)

    assert not waits.done()
    waits.cancel()


async def test_a_wait_at_a_member_out_of_service_ends_when_it_is_back_with_a_leader() -> None:
    shown = CurrentSource(out_of_service())
    waits = asyncio.create_task(shown.leader_changed(shown.leader_view().token))
    for _ in range(3):
        await asyncio.sleep(0)
    member = ShownMember()
    member.hear_leader(3)
    shown.source = member.view

    await asyncio.wait_for(waits, PATIENCE_S)
    assert shown.leader_view().leader_id == "n1"


async def test_a_wait_goes_on_from_one_source_to_the_next() -> None:
    shown = CurrentSource(out_of_service())
    waits = asyncio.create_task(shown.leader_changed(shown.leader_view().token))
    await asyncio.sleep(0)
    shown.source = out_of_service()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waits.done()
    member = ShownMember()
    shown.source = member.view
    member.hear_leader(3)

    await asyncio.wait_for(waits, PATIENCE_S)


class CountingSource:
    """Shows a leader, and counts how often each turn of the loop asks who it is."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.turn = 0
        self.leader_id = "n1"
        self.changed = asyncio.Event()

    def leader_view(self) -> LeaderView:
        self.asked[self.turn] += 1
        return LeaderView(
            self_id="n0",
            term=1,
            leader_id=self.leader_id,
            master=False,
            ledger_end_index=-1,
            committed_index=-1,
        )

    async def leader_changed(self, token: str) -> None:
        await self.changed.wait()


async def test_the_waits_that_one_change_ends_are_answered_over_many_turns() -> None:
    """252 answers took one turn of 15 ms."""
    source = CountingSource()
    app = pages.application(cast("pages.Source", source), CollectorRegistry())
    token = source.leader_view().token
    path = f"/leader?since={token}&wait=60s"
    waits = [
        asyncio.ensure_future(pages.leader_page(make_mocked_request("GET", path, app=app)))
        for _ in range(pages.WAITERS_PER_ADDRESS_MAX)
    ]
    await asyncio.sleep(0)
    source.asked.clear()
    source.leader_id = "n2"
    source.changed.set()
    while not all(wait.done() for wait in waits):
        source.turn += 1
        await asyncio.sleep(0)

    assert max(source.asked.values()) <= PER_TURN
    assert {LeaderView.from_json(wait.result().body).leader_id for wait in waits} == {"n2"}  # type: ignore[arg-type]
