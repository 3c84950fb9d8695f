"""A member that stops releases all that it holds, also if a part of it cannot be closed."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node import main
from dledger_node.closing import Closing
from dledger_node.errors import StoreError
from dledger_node.shell.http_server import HttpServer
from dledger_node.shell.lifecycle import Lifecycle
from dledger_node.shell.server import DLedgerServer
from dledger_node.volume.health import state_of
from dledger_wire.played import elect, make_server, open_store
from tools.groups.ports import free_ports

PARTS: dict[str, Callable[[DLedgerServer], tuple[Any, str]]] = {
    "requests that wait": lambda server: (server.clients, "give_up"),
    "connections": lambda server: (server._gate, "close"),
    "the end of connections": lambda server: (server._gate, "ended"),
    "state": lambda server: (server._state, "close"),
    "saves of term and vote": lambda server: (server._disk.waits, "close"),
    "allocations": lambda server: (server._disk.room, "close"),
    "flushes": lambda server: (server._disk.group_commit, "drain"),
    "executor": lambda server: (server._disk._executor, "shutdown"),
    "scrub": lambda server: (server._scrub, "close"),
    "checkpoint": lambda server: (server._store, "save_checkpoint"),
}


@pytest.mark.parametrize("part", PARTS)
async def test_a_member_closes_its_store_whatever_else_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    owner, method = PARTS[part](server)
    fails = {"count": 0}

    def fail(*_: object, **__: object) -> None:
        fails["count"] += 1
        raise RuntimeError(f"{part}, {fails['count']}")

    monkeypatch.setattr(owner, method, fail)
    with pytest.raises(RuntimeError, match=f"{part}, 1"):
        await server.close()

    reopened = open_store(tmp_path / "n0")  # raises StoreInUseError while the folder is locked
    assert reopened.end_index == 0, "the first entry of the term is durable"
    reopened.close()


async def test_the_first_error_of_a_close_is_reported_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken: list[str] = []

    def fail(name: str) -> None:
        taken.append(name)
        raise StoreError(name)

    async def fail_later() -> None:
        fail("second")

    closing = Closing()
    closing.step(lambda: fail("first"))
    await closing.wait(fail_later)
    closing.step(lambda: taken.append("third"))
    with pytest.raises(StoreError, match="first"):
        closing.end()

    assert taken == ["first", "second", "third"]
    assert [record.getMessage() for record in caplog.records] == [
        "another part cannot be closed: StoreError('second')"
    ]


async def test_a_close_that_is_cancelled_takes_its_other_steps_once_a_thread_has_ended() -> None:
    """The thread uses what the next step releases, and a cancellation does not stop a thread."""
    taken: list[str] = []
    began, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def shut_down() -> None:
        loop.call_soon_threadsafe(began.set)
        assert may_end.wait(60)
        taken.append("thread")

    async def close() -> None:
        closing = Closing()
        await closing.wait(lambda: asyncio.to_thread(shut_down))
        closing.step(lambda: taken.append("store"))
        closing.end()

    task = asyncio.create_task(close())
    await began.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
        assert not taken
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert taken == ["thread", "store"]


async def test_a_cancelled_close_tells_the_error_of_the_step_that_it_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    began, may_fail = asyncio.Event(), asyncio.Event()

    async def fail_later() -> None:
        began.set()
        await may_fail.wait()
        raise StoreError("the disk is gone")

    async def close() -> None:
        closing = Closing()
        await closing.wait(fail_later)
        closing.end()

    task = asyncio.create_task(close())
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert "the disk is gone" in caplog.text


def settings_of(folder: Path) -> NodeSettings:
    ports = free_ports()
    return NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(ports)}"}, http_port=next(ports),
        store_base_dir=str(folder), listen_host="127.0.0.1",
    )  # fmt: skip


@pytest.mark.parametrize("step", ["build_server", "start_http"])
async def test_a_start_that_fails_midway_leaves_the_store_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The next opening would otherwise find the store in use, and end the process."""
    settings, stopping = settings_of(tmp_path), asyncio.Event()
    attempts = 0
    served = asyncio.Event()

    async def heal(_: object) -> str:
        return ""

    async def serve(server: DLedgerServer) -> None:
        served.set()
        await main.serve_member(settings, server, stopping)

    def failing(go_on: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise StoreError("the disk does not answer")
            return go_on(*given)

        return call

    build = lambda opened: main.build_server(settings, opened)  # noqa: E731 - it is wrapped below
    life = Lifecycle(
        settings,
        version="test",
        open_store=lambda verify_all: main.open_store(settings, verify_all=verify_all),
        build_server=failing(build) if step == "build_server" else build,
        serve=serve,
        heal=heal,
        stopping=stopping,
        retry_delay_min_s=0.01,
        retry_delay_max_s=0.01,
    )
    if step == "start_http":
        monkeypatch.setattr(HttpServer, "start", failing(HttpServer.start))
    running = asyncio.create_task(life.run())
    waits = [running, asyncio.ensure_future(served.wait())]
    await asyncio.wait(waits, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    await running

    assert served.is_set()
    assert attempts >= 2


async def test_an_error_in_closing_does_not_hide_the_one_that_stopped_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, stopping = settings_of(tmp_path), asyncio.Event()
    server = main.build_server(settings, main.open_store(settings))

    def fail() -> None:
        raise RuntimeError("a request cannot be answered")

    monkeypatch.setattr(server.clients, "give_up", fail)
    asyncio.get_running_loop().call_soon(server.fail, StoreError("the disk is gone"))
    with pytest.raises(StoreError, match="the disk is gone"):
        await main.serve_member(settings, server, stopping)


@pytest.mark.parametrize("error", [StoreError("the disk is gone"), RuntimeError("a bug")])
async def test_a_member_that_must_stop_says_so_while_its_disk_holds_up_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    settings, stopping, may_close = settings_of(tmp_path), asyncio.Event(), asyncio.Event()
    closing = asyncio.Event()

    async def heal(_: object) -> str:
        return ""

    async def serve(server: DLedgerServer) -> None:
        drain = server._disk.group_commit.drain

        async def drain_slowly() -> None:
            closing.set()
            await may_close.wait()
            await drain()

        monkeypatch.setattr(server._disk.group_commit, "drain", drain_slowly)
        asyncio.get_running_loop().call_soon(server.fail, error)
        await main.serve_member(settings, server, stopping)

    life = Lifecycle(
        settings,
        version="test",
        open_store=lambda verify_all: main.open_store(settings, verify_all=verify_all),
        build_server=lambda opened: main.build_server(settings, opened),
        serve=serve,
        heal=heal,
        stopping=stopping,
    )
    running = asyncio.create_task(life.run())
    async with asyncio.timeout(20):
        await closing.wait()
    shown, leader = life._shown.status(), life._shown.leader_view()
    stopping.set()
    may_close.set()
    with contextlib.suppress(RuntimeError):
        await running

    assert (shown.ready, shown.master, leader.master) == (False, False, False)
    assert (shown.reason, shown.storage) == (str(error), state_of(error))
