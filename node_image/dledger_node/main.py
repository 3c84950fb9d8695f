"""Read the settings, and run one member until it is stopped."""

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import uvloop

from dledger_formats import interrupts, log_lines
from dledger_formats.console import readable
from dledger_formats.peers import split_address
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_node import limited_log, open_files
from dledger_node.closing import closed_on_error
from dledger_node.config import join_address, peer_hosts, raft_config, store_folder
from dledger_node.embedding import Member, Program
from dledger_node.errors import ListenError, NodeError, StoreError
from dledger_node.freed_memory import keep_freed_memory
from dledger_node.healing.repair import StoreRepair
from dledger_node.http.auditors import Auditors
from dledger_node.raft.core import Raft
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.membership import Membership
from dledger_node.remoting.connection import Connection
from dledger_node.remoting.dispatch import Dispatcher
from dledger_node.shell.lifecycle import Lifecycle, Opened
from dledger_node.shell.live_settings import LiveSettings
from dledger_node.shell.meters import Meters
from dledger_node.shell.server import DLedgerServer
from dledger_node.start_checks import check_start
from dledger_node.state_machine.keeper import OpenedState
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.recovery import MARGIN_BYTES, RecoveryProgress
from dledger_node.store.small_files.formats import check_formats
from dledger_node.store.small_files.group_file import check_owner, claim
from dledger_node.store.small_files.hard_state import begin_hard_state, save_hard_state

logger = logging.getLogger(__name__)

HAND_OVER_TIMEOUT_S: Final = 3.0
DRAIN_TIMEOUT_S: Final = 2.0
PROGRAM_DRAIN_TIMEOUT_S: Final = 6.0
EXIT_SETTINGS: Final = 2
EXIT_FATAL: Final = 1
CHATTY: Final = ("aiohttp.access",)


def main() -> int:
    """Run one member with the settings of the environment."""
    try:
        settings = NodeSettings.from_environment(os.environ)
        check_start(settings)
    except SettingsError as error:
        print(f"dledger-node: {readable(str(error))}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    log_lines.configure(log_format=settings.log_format, level=settings.log_level, chatty=CHATTY)
    limited_log.limit_libraries()
    open_files.raise_limit()
    keep_freed_memory()
    gc.freeze()  # a full collection would go through all modules, for 10 ms and more
    try:
        uvloop.run(serve(settings))
    except (NodeError, OSError) as error:
        logger.critical("%s %s stopped: %s", settings.group, settings.self_id, error)
        return EXIT_FATAL
    return 0


async def serve(
    settings: NodeSettings, stop: asyncio.Event | None = None, program: Program | None = None
) -> None:
    """Run one member until `stop` is set or a signal arrives; raise the error if it fails."""
    stopping = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    if stop is None:
        for signal_number in interrupts.not_ignored((signal.SIGTERM, signal.SIGINT)):
            loop.add_signal_handler(signal_number, stopping.set)
    meters = Meters(program_collectors=() if program is None else program.collectors)
    live = LiveSettings(settings)
    if stop is None:
        loop.add_signal_handler(signal.SIGHUP, live.wake)
    repair = StoreRepair(settings, lambda: datetime.now(UTC), meters.mended)

    def open_again(verify_all: bool) -> Opened:
        found = open_store(
            settings, verify_all=verify_all, progress=meters.recovery, program=program
        )
        repair.note_opened()
        return found

    lifecycle = Lifecycle(
        settings,
        version=version("dledger-operator"),
        open_store=open_again,
        build_server=lambda opened: build_server(settings, opened, meters, live),
        serve=lambda server: serve_member(settings, server, stopping, program),
        heal=repair.repair,
        stopping=stopping,
        meters=meters,
        auditors=Auditors(live.tokens, peer_hosts(settings)),
    )
    await lifecycle.run()


async def serve_member(
    settings: NodeSettings,
    server: DLedgerServer,
    stopping: asyncio.Event,
    program: Program | None = None,
) -> None:
    """Listen, and take part in the group, until `stopping` is set; raise the error if it fails.

    Closes the store in any case.
    """
    loop = asyncio.get_running_loop()
    listener: asyncio.Server | None = None
    running = loop.create_task(server.run())
    stopped = loop.create_task(stopping.wait())
    waited: set[asyncio.Future[Any]] = {stopped, running, server.fatal}
    serving: asyncio.Task[None] | None = None
    if program is not None:
        server.view.program.report = program.report
    try:
        port = split_address(settings.address)[1]
        try:
            listener = await loop.create_server(
                lambda: Connection(server.clients, Dispatcher(server.clients)),
                settings.listen_host,
                port,
                backlog=1024,
            )
        except OSError as error:
            where = join_address(settings.listen_host, port)
            raise ListenError(f"cannot listen on {where}: {error}") from error
        logger.info("%s %s is listening on port %d", settings.group, settings.self_id, port)
        if program is not None:
            serving = loop.create_task(program.serve(Member(server)))
            serving.add_done_callback(lambda task: _note_failure(server, task))
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not (running.done() or server.fatal.done()):
            await server.hand_over(HAND_OVER_TIMEOUT_S)
            await server.drain(DRAIN_TIMEOUT_S)
            if program is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(program.drain(), PROGRAM_DRAIN_TIMEOUT_S)
    finally:
        if listener is not None:
            listener.close()
        ending = [task for task in (serving, stopped, running) if task is not None]
        for task in ending:
            task.cancel()
        try:
            await asyncio.gather(*ending, return_exceptions=True)
        finally:
            await _close(server, running)
    _raise_fatal(server, running)


def _note_failure(server: DLedgerServer, serving: "asyncio.Task[None]") -> None:
    """Stop the member if its program has failed."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        server.fail(error)


async def _close(server: DLedgerServer, running: "asyncio.Task[None]") -> None:
    """Close the server; an error in closing must not hide the error that stopped the member."""
    try:
        await server.close()
    except Exception as error:
        has_failed = not running.cancelled() and running.exception() is not None
        if not (server.fatal.done() or has_failed):
            raise
        is_expected = isinstance(error, StoreError | OSError)
        logger.warning("cannot close cleanly: %s", error, exc_info=None if is_expected else error)


def open_store(
    settings: NodeSettings,
    *,
    verify_all: bool = False,
    margin_bytes: int = MARGIN_BYTES,
    progress: RecoveryProgress | None = None,
    program: Program | None = None,
) -> Opened:
    """Open and recover the store, load term and vote, and restore the state; blocks."""
    folder = store_folder(settings)
    # The checks come first, since recovery changes files.
    check_owner(folder, settings.group, settings.group_identity)
    check_formats(folder)
    store = LogStore.open(
        folder,
        segment_size_bytes=settings.segment_size_bytes,
        index_segment_size_bytes=settings.index_segment_size_bytes,
        verify_all=verify_all,
        margin_bytes=margin_bytes,
        progress=progress,
    )
    logger.info("opened %s: %s", folder, store.recovery)
    with closed_on_error(store.close):
        claim(folder, settings.group, settings.group_identity)
        hard_state = begin_hard_state(folder, store.end_term)
        return (
            store,
            hard_state,
            OpenedState.of(settings, folder, store, None if program is None else program.machine),
        )


def build_server(
    settings: NodeSettings,
    opened: Opened,
    meters: Meters | None = None,
    live: LiveSettings | None = None,
) -> DLedgerServer:
    """Build the member around its store."""
    store, hard_state, state = opened
    folder = store_folder(settings)
    chance = random.SystemRandom()
    # Used for every push that arrives, too often for a system call each time.
    timeouts = random.Random(chance.getrandbits(128))
    config = raft_config(settings)
    core = Raft(
        config,
        hard_state,
        LogTerms(store.begin_index, store.term_runs(), store.end_index),
        committed_index=store.committed_index,
        incarnation=chance.getrandbits(63),
        randint=timeouts.randint,
        memberships=LogMemberships(
            Membership(config.voters), store.memberships.entries, base=store.memberships.base
        ),
    )
    return DLedgerServer(
        settings,
        core,
        store,
        state=state,
        save_hard_state=lambda state: save_hard_state(folder, state),
        group_file=claim(folder, settings.group, settings.group_identity),
        version=version("dledger-operator"),
        uniform=chance.uniform,
        meters=meters,
        live=live,
    )


def _raise_fatal(server: DLedgerServer, running: "asyncio.Task[None]") -> None:
    if server.fatal.done():
        server.fatal.result()
    if not running.cancelled():
        running.result()
