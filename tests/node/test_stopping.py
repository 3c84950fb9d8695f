"""A member that is asked to stop does not wait until a long log is read."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from dledger_formats.http.status import NodeStatus
from dledger_formats.settings import NodeSettings
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.shell import lifecycle
from dledger_node.shell.lifecycle import Lifecycle, Opened
from dledger_node.shell.meters import Meters
from tools.groups.ports import free_ports

DAMAGE = StoreDamagedError("entry 7 is damaged", Damage.BAD_ENTRY, 7)
MEMBER_THAT_READS_FOR_EVER = """
import os, sys, threading
from dledger_node import main
from dledger_node.store.log import entry_walk

def read(self, window, pos):
    print("reads", flush=True)
    threading.Event().wait()

entry_walk.EntryWalk._take_from = read
sys.argv[1:] = []
sys.exit(main.main())
"""


async def nothing(_: object) -> str:
    return ""


def life_of(
    folder: Path,
    stopping: asyncio.Event,
    open_store: Callable[[bool], Opened],
    heal: Callable[[StoreDamagedError], Awaitable[str]] = nothing,
    *,
    meters: Meters | None = None,
    port: int = 0,
) -> Lifecycle:
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder),
        http_port=port or next(free_ports()), listen_host="127.0.0.1",
    )  # fmt: skip
    return Lifecycle(
        settings,
        version="test",
        open_store=open_store,
        build_server=lambda _: pytest.fail("the member must not serve"),
        serve=lambda _: pytest.fail("the member must not serve"),
        heal=heal,
        stopping=stopping,
        retry_delay_min_s=0.01,
        retry_delay_max_s=0.01,
        meters=meters,
    )


async def test_a_member_stops_while_its_store_is_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.01)
    stopping, opening, go_on = asyncio.Event(), threading.Event(), threading.Event()
    closed = threading.Event()

    class Store:
        def close(self) -> None:
            closed.set()

    def open_store(_: bool) -> Opened:
        opening.set()
        go_on.wait(20)
        return Store(), None, None  # type: ignore[return-value]

    running = asyncio.create_task(life_of(tmp_path, stopping, open_store).run())
    await asyncio.to_thread(opening.wait, 20)
    stopping.set()
    await asyncio.wait_for(running, 5)
    assert not closed.is_set()

    go_on.set()
    assert await asyncio.to_thread(closed.wait, 20), "a store that is opened too late is closed"


async def test_a_member_shows_how_much_of_its_log_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "SLOW_OPENING_S", 0.01)
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.01)
    stopping, go_on, meters = asyncio.Event(), threading.Event(), Meters()
    port = next(free_ports())

    def open_store(_: bool) -> Opened:
        meters.recovery.size_bytes, meters.recovery.verified_bytes = 8192, 4096
        go_on.wait(20)
        raise DAMAGE

    life = life_of(tmp_path, stopping, open_store, meters=meters, port=port)
    running = asyncio.create_task(life.run())
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        raw = await answer_of(session, "/status")
        lines = (await answer_of(session, "/metrics")).decode().splitlines()
    status = NodeStatus.from_json(raw)
    stopping.set()
    go_on.set()
    await asyncio.wait_for(running, 20)

    assert (status.recovery_verified_bytes, status.recovery_size_bytes) == (4096, 8192)
    assert "dledger_node_recovery_verified_bytes 4096.0" in lines
    assert "dledger_node_recovery_size_bytes 8192.0" in lines
    assert meters.traffic.http.sent_bytes > len(raw)


async def answer_of(session: aiohttp.ClientSession, path: str) -> bytes:
    """Return a page, once the member listens."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with session.get(path) as answer:
                    return await answer.read()
            await asyncio.sleep(0.01)


async def test_a_member_stops_while_its_store_is_being_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.01)
    stopping, healing = asyncio.Event(), asyncio.Event()

    async def heal(_: StoreDamagedError) -> str:
        healing.set()
        await asyncio.Event().wait()
        return ""

    def open_store(_: bool) -> Opened:
        raise DAMAGE

    running = asyncio.create_task(life_of(tmp_path, stopping, open_store, heal).run())
    await asyncio.wait_for(healing.wait(), 20)
    stopping.set()

    await asyncio.wait_for(running, 5)


@contextlib.contextmanager
def member_that_reads_for_ever(folder: Path, begin: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a process that reads its log without an end; `begin` is run before all else."""
    ports = free_ports()
    environment = os.environ | {
        "DLEDGER_GROUP": "g",
        "DLEDGER_SELF_ID": "n0",
        "DLEDGER_PEERS": f"n0-127.0.0.1:{next(ports)}",
        "DLEDGER_STORE_BASE_DIR": str(folder),
        "DLEDGER_HTTP_PORT": str(next(ports)),
        "DLEDGER_LISTEN_HOST": "127.0.0.1",
    }
    data = folder / "dledger-n0" / "data"
    data.mkdir(parents=True)
    with (data / f"{0:020}").open("wb") as segment:
        segment.truncate(1 << 30)
    with subprocess.Popen(
        [sys.executable, "-c", begin + MEMBER_THAT_READS_FOR_EVER],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as member:  # fmt: skip
        try:
            assert member.stdout is not None
            assert member.stdout.readline() == "reads\n"
            yield member
        finally:
            member.kill()


def test_a_process_ends_on_sigterm_while_it_reads_its_log(tmp_path: Path) -> None:
    with member_that_reads_for_ever(tmp_path) as member:
        member.send_signal(signal.SIGTERM)

        assert member.wait(10) == 0


def test_a_member_that_was_started_to_ignore_ctrl_c_ignores_it(tmp_path: Path) -> None:
    begin = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with member_that_reads_for_ever(tmp_path, begin) as member:
        status = Path(f"/proc/{member.pid}/status").read_text()
        [ignored] = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")]

    assert int(ignored, 16) & 1 << (signal.SIGINT - 1)
