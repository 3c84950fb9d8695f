"""A member that is asked to stop does not wait until a long log is read."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.shell import lifecycle
from dledger_node.shell.lifecycle import Lifecycle, Opened
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
) -> Lifecycle:
    port = next(free_ports())
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder),
        http_port=port, listen_host="127.0.0.1",
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


def test_a_process_ends_on_sigterm_while_it_reads_its_log(tmp_path: Path) -> None:
    ports = free_ports()
    environment = os.environ | {
        "DLEDGER_GROUP": "g",
        "DLEDGER_SELF_ID": "n0",
        "DLEDGER_PEERS": f"n0-127.0.0.1:{next(ports)}",
        "DLEDGER_STORE_BASE_DIR": str(tmp_path),
        "DLEDGER_HTTP_PORT": str(next(ports)),
        "DLEDGER_LISTEN_HOST": "127.0.0.1",
    }
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    with (data / f"{0:020}").open("wb") as segment:
        segment.truncate(1 << 30)
    with subprocess.Popen(
        [sys.executable, "-c", MEMBER_THAT_READS_FOR_EVER],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as member:  # fmt: skip
        try:
            assert member.stdout is not None
            assert member.stdout.readline() == "reads\n"
            member.send_signal(signal.SIGTERM)
            assert member.wait(10) == 0
        finally:
            member.kill()
