"""A thread answers probes while the event loop waits for the disk."""

import asyncio
import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from dledger_node.http import deputy
from dledger_node.http.deputy import Deputy, thread_states, waits_for_the_disk

BLOCKED_S = 2.5


@dataclass
class Asked:
    """The answers to requests that were made while the loop was blocked."""

    port: int

    def get(self, path: str) -> tuple[int, str]:
        """Ask once the deputy stands in."""
        time.sleep(0.2)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


def while_blocked(ask: Callable[[Asked], object]) -> object:
    """Serve, block the loop, and return what `ask` got from another thread meanwhile."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="from the loop\n")

    async def serve() -> object:
        app = web.Application()
        app.add_routes([web.get("/{name}", page)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [listener] = site._server.sockets  # type: ignore[union-attr]
        stand_in = Deputy([listener.fileno()])
        try:
            with ThreadPoolExecutor() as threads:
                asked: Future[object] = threads.submit(ask, Asked(listener.getsockname()[1]))
                time.sleep(BLOCKED_S)  # noqa: ASYNC251 - the loop is blocked
                return await asyncio.wrap_future(asked)
        finally:
            stand_in.close()
            await runner.cleanup()

    served: Awaitable[object] = serve()
    return uvloop.run(served)  # type: ignore[arg-type]


@pytest.fixture
def _on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a blocked loop count as one that waits for the disk."""
    monkeypatch.setattr(Deputy, "_waits_for_the_disk", lambda _: True)
    monkeypatch.setattr(deputy, "LATE_S", 0.1)


@pytest.mark.usefixtures("_on_disk")
def test_a_blocked_loop_is_alive_and_not_ready() -> None:
    def ask(asked: Asked) -> list[tuple[int, str]]:
        return [asked.get(path) for path in ("/healthz", "/readyz", "/status")]

    answers = while_blocked(ask)

    assert isinstance(answers, list)
    assert answers[0] == (200, "ok\n")
    assert [status for status, _ in answers] == [200, 503, 503]
    assert "has waited for the disk" in answers[1][1]


@pytest.mark.usefixtures("_on_disk")
def test_connections_that_ask_for_nothing_do_not_keep_probes_from_their_answer() -> None:
    def ask(asked: Asked) -> tuple[int, str]:
        silent = [
            socket.create_connection(("127.0.0.1", asked.port))
            for _ in range(2 * deputy.CONNECTIONS_MAX)
        ]
        answer = asked.get("/healthz")
        for each in silent:
            each.close()
        return answer

    assert while_blocked(ask) == (200, "ok\n")


@pytest.mark.usefixtures("_on_disk")
def test_a_connection_that_is_accepted_before_the_loop_goes_on_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deputy, "REQUEST_S", 10.0)

    def ask(asked: Asked) -> bytes:
        asked.get("/healthz")
        with socket.create_connection(("127.0.0.1", asked.port), timeout=10) as late:
            while asked.get("/healthz") != (200, "from the loop\n"):
                pass  # the loop is still blocked
            late.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            return late.recv(4096)

    answer = while_blocked(ask)

    assert isinstance(answer, bytes)
    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_loop_that_is_busy_has_no_deputy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that never ends must not pass for a live one."""
    monkeypatch.setattr(deputy, "LATE_S", 0.1)

    assert while_blocked(lambda asked: asked.get("/healthz")) == (200, "from the loop\n")


def test_a_deputy_sleeps_while_nobody_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle member is not woken for it."""
    monkeypatch.setattr(deputy, "LATE_S", 0.01)

    def wakes(_: Asked) -> tuple[int, int]:
        [thread] = [each for each in threading.enumerate() if each.name == "deputy"]
        status = Path(f"/proc/self/task/{thread.native_id}/status")
        switches = re.compile(r"^voluntary_ctxt_switches:\t(\d+)$", re.MULTILINE)
        seen = []
        for _pause in range(2):
            time.sleep(BLOCKED_S / 4)  # its start is over, and then: what it does all the time
            seen += switches.findall(status.read_text())
        return int(seen[0]), int(seen[1])

    before, after = while_blocked(wakes)  # type: ignore[misc]

    assert after == before


@pytest.mark.parametrize(
    ("states", "waits"),
    [
        ({1: "D", 2: "S"}, True),
        ({1: "S", 2: "D"}, True),
        ({1: "R", 2: "D"}, False),
        ({1: "S", 2: "S"}, False),
        ({2: "D"}, False),
    ],
    ids=["the-loop-itself", "for-a-thread", "busy-beside-one", "asleep", "ended"],
)
def test_a_loop_waits_for_the_disk_itself_or_for_a_thread_that_does(
    states: dict[int, str], waits: bool
) -> None:
    assert waits_for_the_disk(1, states) == waits


def test_the_states_of_this_process_s_threads_are_known() -> None:
    assert thread_states()[threading.get_native_id()] == "R"


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    while_blocked(lambda _: None)

    assert threading.active_count() == before


@pytest.mark.usefixtures("_on_disk")
def test_a_request_that_comes_as_its_connection_must_go_does_not_end_the_deputy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest connection is closed for a new one while its own request waits to be read."""
    monkeypatch.setattr(deputy, "CONNECTIONS_MAX", 1)

    def ask(asked: Asked) -> tuple[int, str]:
        for _ in range(20):
            crowd = [socket.create_connection(("127.0.0.1", asked.port)) for _ in range(8)]
            for each in crowd:
                with contextlib.suppress(OSError):
                    each.sendall(b"GET /status HTTP/1.1\r\n\r\n")
            for each in crowd:
                each.close()
        return asked.get("/healthz")

    assert while_blocked(ask) == (200, "ok\n")
