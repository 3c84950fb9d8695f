"""A member is ready, and so gets clients of a Service, only while its broker serves."""

import asyncio
import contextlib
import http.client
from pathlib import Path

import aiohttp
import pytest

from dledger_broker.program import BrokerProgram
from dledger_broker.settings import BrokerSettings
from dledger_broker_client.sender import Sender
from dledger_formats.http.status import NodeStatus
from dledger_formats.settings import NodeSettings
from dledger_node.embedding import Member
from dledger_node.main import serve
from tools.groups.broker_group import BrokerGroup
from tools.groups.ports import free_ports
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

STORED = 9_000


class LateProgram(BrokerProgram):
    """A broker that starts when it may."""

    def __init__(self, settings: BrokerSettings) -> None:
        super().__init__(settings)
        self.may_start = asyncio.Event()

    async def serve(self, member: Member) -> None:
        await self.may_start.wait()
        await super().serve(member)


async def page(settings: NodeSettings, path: str) -> tuple[int, bytes]:
    url = f"http://127.0.0.1:{settings.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.read()


async def until_leads(settings: NodeSettings, *, ready: bool) -> NodeStatus:
    async with asyncio.timeout(30):
        while True:
            try:
                status = NodeStatus.from_json((await page(settings, "/status"))[1])
            except (aiohttp.ClientError, ValueError):
                status = None
            if status is not None and status.master and status.ready is ready:
                return status
            await asyncio.sleep(0.02)


async def test_a_leader_is_ready_only_once_its_broker_accepts_clients(tmp_path: Path) -> None:
    ports = free_ports()
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"},
        store_base_dir=str(tmp_path), listen_host="127.0.0.1", http_port=next(ports),
        heartbeat_interval_ms=20, election_timeout_ms=50,
    )  # fmt: skip
    address = f"127.0.0.1:{next(ports)}"
    program = LateProgram(BrokerSettings(node=settings, addresses={"n0": address}, name="b"))
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop, program))

    waiting = await until_leads(settings, ready=False)
    readiness = await page(settings, "/readyz")
    program.may_start.set()
    started = await until_leads(settings, ready=True)
    stop.set()
    await serving

    assert readiness[0] == 503
    assert waiting.reason == "the broker has not started yet"
    assert waiting.broker is not None
    assert not waiting.broker.serving
    assert started.broker is not None
    assert (started.broker.serving, started.broker.address) == (True, address)


def metric(page: str, name: str) -> float:
    [line] = [each for each in page.splitlines() if each.startswith(name)]
    return float(line.split()[-1])


def test_a_member_that_has_started_again_is_ready_only_once_its_state_has_its_log(
    tmp_path: Path,
) -> None:
    """It may lead next, and a leader takes no sends before that."""
    with BrokerGroup(tmp_path, snapshot_threshold=1_000_000) as group:
        leader = group.master()
        sender = Sender(group.broker_addresses[leader], "t", STORED)
        sender.start()
        sender.join()
        follower = next(member for member in group.peers if member != leader)
        group.wait_for_status(
            follower, lambda status: status.ledger_end_index >= STORED, "it has the messages"
        )
        group.kill(follower)
        end_index = group.status(leader).ledger_end_index
        group.start(follower)

        def ready_page() -> str | None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                page = group.get(follower, "/metrics")[1].decode()
                return (
                    page
                    if "dledger_node_ready" in page and metric(page, "dledger_node_ready")
                    else None
                )
            return None

        page = wait_for(ready_page, "the member is ready")

    assert {answer.code for answer in sender.answers} == {0}
    assert metric(page, "dledger_node_applied_index") >= end_index
