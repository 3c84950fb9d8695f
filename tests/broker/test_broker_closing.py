"""A broker that stops leaves nothing open, also if a part of it cannot be closed or opened."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.broker import Broker
from dledger_broker.metrics import BrokerCounters
from dledger_broker.program import BrokerProgram
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.settings import BrokerSettings
from dledger_formats.settings import NodeSettings
from dledger_node import main
from dledger_node.embedding import Member
from dledger_node.errors import ListenError
from tools.groups.ports import free_ports

PARTS: dict[str, Callable[[Broker], tuple[Any, str]]] = {
    "offset commits": lambda broker: (broker._commits, "close"),
    "requests for the leader": lambda broker: (broker._to_leader, "close"),
    "queues": lambda broker: (broker._feed, "close"),
    "name servers": lambda broker: (broker._announcer, "closed"),
}


@pytest.fixture
def settings(tmp_path: Path) -> BrokerSettings:
    """Settings of a member that shares a port with others."""
    ports = free_ports()
    node = NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"},
        store_base_dir=str(tmp_path), listen_host="127.0.0.1",
    )  # fmt: skip
    return BrokerSettings(
        node=node, addresses={"n0": f"127.0.0.1:{next(ports)}"}, name="b",
        group_address=f"127.0.0.1:{next(ports)}", shares_port=True,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def a_broker(settings: BrokerSettings) -> AsyncIterator[Broker]:
    """Build a broker around a member that is in service, and does not run."""
    opened = main.open_store(settings.node, program=BrokerProgram(settings))
    server = main.build_server(settings.node, opened)
    try:
        yield Broker(settings, Member(server), BrokerCounters())
    finally:
        await server.close()


def reading_threads() -> list[str]:
    """Return the threads that read messages."""
    prefixes = ("pulls", "delays", "messages")
    return [each.name for each in threading.enumerate() if each.name.startswith(prefixes)]


def open_queue_files(settings: BrokerSettings) -> list[str]:
    """Return the files of queues that this process has open."""
    folder = str(main.store_folder(settings.node) / "queues")
    paths = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this very listing
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in paths if path.startswith(folder)]


async def is_free(address: str) -> bool:
    """Return whether the address can be bound."""
    host, _, port = address.rpartition(":")
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, int(port))
    except OSError:
        return False
    server.close()
    return True


@pytest.mark.parametrize("part", PARTS)
async def test_a_broker_stops_its_threads_whatever_else_cannot_be_closed(
    settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async with a_broker(settings) as broker:
        running = asyncio.create_task(broker.run())
        await asyncio.wait_for(listening(broker, running), 20)
        running.cancel()
        await asyncio.wait([running])
        owner, method = PARTS[part](broker)
        close = getattr(owner, method)

        def fail() -> None:
            raise RuntimeError(part)

        with monkeypatch.context() as patched:
            patched.setattr(owner, method, fail)
            with pytest.raises(RuntimeError, match=part):
                await broker.close()
        assert not reading_threads()
        if part == "queues":
            await close()
        assert not open_queue_files(settings)


async def listening(broker: Broker, running: "asyncio.Task[None]") -> None:
    """Return once the broker serves."""
    while broker.why_not_serving:
        assert not running.done(), running
        await asyncio.sleep(0.01)


async def test_a_broker_that_cannot_bind_one_port_does_not_keep_the_other(
    settings: BrokerSettings,
) -> None:
    taken = settings.group_address
    host, _, port = taken.rpartition(":")
    other = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, int(port))
    try:
        async with a_broker(settings) as broker:
            with pytest.raises(ListenError):
                await broker.run()
            await broker.close()
    finally:
        other.close()

    assert await is_free(settings.addresses["n0"])


async def test_queues_that_are_opened_too_late_are_closed(
    settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, may_go_on, closed = threading.Event(), threading.Event(), threading.Event()
    open_queues, close_queues = QueueStore.open, QueueStore.close

    def slow_open(*given: Any, **options: Any) -> QueueStore:
        opens.set()
        assert may_go_on.wait(20)
        return open_queues(*given, **options)

    def close(store: QueueStore) -> None:
        closed.set()
        close_queues(store)

    monkeypatch.setattr(QueueStore, "open", slow_open)
    monkeypatch.setattr(QueueStore, "close", close)
    async with a_broker(settings) as broker:
        running = asyncio.create_task(broker.run())
        assert await asyncio.to_thread(opens.wait, 20)
        running.cancel()
        await asyncio.wait([running])
        closing = asyncio.create_task(broker.close())
        await asyncio.sleep(0)
        may_go_on.set()
        await closing

    assert closed.is_set()
