"""The program `dledger-node`: read the settings, run one member until it is told to stop."""

import asyncio
import logging
import os
import random
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import uvloop
from aiohttp import web

from dledger_formats.settings import NodeSettings, SettingsError
from dledger_node import logs
from dledger_node.config import raft_config, split_address
from dledger_node.errors import NodeError
from dledger_node.http import metrics, pages
from dledger_node.raft.core import Raft
from dledger_node.raft.log_terms import LogTerms
from dledger_node.remoting.connection import Connection
from dledger_node.server import DLedgerServer
from dledger_node.store.hard_state import load_hard_state, save_hard_state
from dledger_node.store.mmap_store import MmapStore
from dledger_node.store_command import command as store_command

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 2.0
EXIT_SETTINGS: Final = 2
EXIT_FATAL: Final = 1
USAGE: Final = (
    "dledger-node                         run one member; settings are DLEDGER_* variables\n"
    "dledger-node store COMMAND FOLDER    look at a member's files (store --help)"
)


def main() -> int:
    """Run one member, with the environment's settings; or `dledger-node store …` on its files."""
    if sys.argv[1:2] == ["store"]:
        return store_command.main(sys.argv[2:])
    if sys.argv[1:]:
        print(USAGE, file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    try:
        settings = NodeSettings.from_environment(os.environ)
    except SettingsError as error:
        print(f"dledger-node: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    logs.configure(settings.log_format)
    try:
        uvloop.run(serve(settings))
    except (NodeError, OSError) as error:
        logger.critical("%s %s stops: %s", settings.group, settings.self_id, error)
        return EXIT_FATAL
    return 0


async def serve(settings: NodeSettings, stop: asyncio.Event | None = None) -> None:
    """Run one member until `stop` is set or a signal comes; raises what made it stop otherwise."""
    stopping = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    if stop is None:
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stopping.set)
    server = open_server(settings)
    runner = web.AppRunner(
        pages.application(server, metrics.registry(server)),
        handle_signals=False,
        access_log=None,
        shutdown_timeout=0.5,
    )
    listener: asyncio.Server | None = None
    running = loop.create_task(server.run())
    stopped = loop.create_task(stopping.wait())
    try:
        await runner.setup()
        await web.TCPSite(runner, settings.listen_host, settings.http_port).start()
        port = split_address(settings.address)[1]
        listener = await loop.create_server(
            lambda: Connection(server), settings.listen_host, port, backlog=1024
        )
        logger.info("%s %s listens on port %d", settings.group, settings.self_id, port)
        waited: set[asyncio.Future[Any]] = {stopped, running, server.fatal}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not (running.done() or server.fatal.done()):
            await server.drain(DRAIN_TIMEOUT_S)
    finally:
        if listener is not None:
            listener.close()
        stopped.cancel()
        running.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)
        await server.close()
        await runner.cleanup()
    _raise_fatal(server, running)


def open_server(settings: NodeSettings) -> DLedgerServer:
    """Open the store, recover, and build the member around it."""
    folder = Path(settings.store_base_dir) / f"dledger-{settings.self_id}"
    store = MmapStore.open(
        folder,
        segment_size_bytes=settings.segment_size_bytes,
        index_segment_size_bytes=settings.index_segment_size_bytes,
    )
    logger.info("opened %s: %s", folder, store.recovery)
    chance = random.SystemRandom()
    core = Raft(
        raft_config(settings),
        load_hard_state(folder, store.end_term),
        LogTerms(store.begin_index, store.term_runs(), store.end_index),
        committed_index=store.committed_index,
        randint=chance.randint,
    )
    return DLedgerServer(
        settings,
        core,
        store,
        save_hard_state=lambda state: save_hard_state(folder, state),
        version=version("dledger-operator"),
        uniform=chance.uniform,
    )


def _raise_fatal(server: DLedgerServer, running: "asyncio.Task[None]") -> None:
    if server.fatal.done():
        server.fatal.result()
    if not running.cancelled():
        running.result()
