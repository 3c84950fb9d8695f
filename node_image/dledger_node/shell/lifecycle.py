"""One member from start to end: in service while its store is sound, out of service otherwise.

A fault of the volume never ends the process. It takes the whole member out of the group at once:
links and connections are closed, so that the others notice, and the store is closed. Then HTTP
shows the reason, and the member retries opening the store, verifying everything in doubt, until it
succeeds. Any other error ends the process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from dledger_formats.http.status import STORE_IS_OPENING, StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.closing import aclosed_on_error, closed_on_error
from dledger_node.daemon_call import call_in_daemon
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreInUseError
from dledger_node.healing.closed_log import ClosedLog, shape_of
from dledger_node.http.auditors import Auditors
from dledger_node.http.outage import Outage
from dledger_node.raft.ready import HardState
from dledger_node.shell.current_source import CurrentSource
from dledger_node.shell.http_server import HttpServer
from dledger_node.shell.meters import Meters
from dledger_node.shell.server import DLedgerServer
from dledger_node.shortages import is_passing
from dledger_node.state_machine.keeper import OpenedState
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.health import state_of
from dledger_node.volume.upkeep import NO_USAGE, VolumeUsage, volume_usage

logger = logging.getLogger(__name__)

SLOW_OPENING_S: Final = 5.0
"""An opening that takes longer is shown over HTTP."""
STOP_GRACE_S: Final = 1.0
"""How long a member that is asked to stop waits until its store is opened or healed."""
RETRY_DELAY_MIN_S: Final = 0.5
RETRY_DELAY_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""After serving for this long, a member retries with the shortest delay again."""

Opened = tuple[LogStore, HardState, OpenedState | None]


class Lifecycle:
    """Opens the store and serves, repeatedly, until `stopping` is set."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        version: str,
        open_store: Callable[[bool], Opened],
        build_server: Callable[[Opened], DLedgerServer],
        serve: Callable[[DLedgerServer], Awaitable[None]],
        heal: Callable[[StoreDamagedError], Awaitable[str]],
        stopping: asyncio.Event,
        retry_delay_min_s: float = RETRY_DELAY_MIN_S,
        retry_delay_max_s: float = RETRY_DELAY_MAX_S,
        meters: Meters | None = None,
        auditors: Auditors | None = None,
    ) -> None:
        """`open_store` blocks; its argument says whether to verify everything. `serve` returns if
        the member was asked to stop, and otherwise raises the error that stopped it. `heal` gets
        damage that was found twice in a row, and returns why the store is still damaged, or "".
        Without `auditors`, anybody may read the log from the pages.
        """
        self._settings = settings
        self._version = version
        self._meters = meters or Meters()
        self._open_store = open_store
        self._build_server = build_server
        self._serve = serve
        self._heal = heal
        self._stopping = stopping
        self._shown = CurrentSource(self._outage(StorageState.SOUND, STORE_IS_OPENING))
        self._http = HttpServer(settings, self._shown, self._meters, auditors)
        self._retry_delay_min_s = retry_delay_min_s
        self._retry_delay_max_s = retry_delay_max_s
        self._delay_s = retry_delay_min_s
        self._verify_all = False
        self._damaged = False
        """Whether the last attempt to open the store, or the last period of service, found damage.
        """

    async def run(self) -> None:
        """Run until stopped. Raises any error that is not a fault of the volume."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._serve_once()
                except StoreInUseError:
                    raise
                except (StoreError, OSError) as error:
                    await self._stay_out(error)
        finally:
            await self._http.close()

    async def _serve_once(self) -> None:
        opened = await self._opened()
        if opened is None:
            return
        if self._stopping.is_set():
            opened[0].close()
            return
        with closed_on_error(opened[0].close):
            server = self._build_server(opened)
        self._verify_all = self._damaged = False
        self._shown.source = server.view
        server.fatal.add_done_callback(self._show_failure)
        began_s = asyncio.get_running_loop().time()
        try:
            async with aclosed_on_error(server.close):
                await self._http.start()
            await self._serve(server)
        finally:
            if asyncio.get_running_loop().time() - began_s > STEADY_S:
                self._delay_s = self._retry_delay_min_s

    def _show_failure(self, fatal: "asyncio.Future[None]") -> None:
        """Show at once why the member must stop: closing takes as long as the disk hangs.

        Until the store is closed, its files must not be read: they may still be written.
        """
        error = None if fatal.cancelled() else fatal.exception()
        if isinstance(error, Exception):
            self._shown.source = self._outage(state_of(error), str(error), is_closed=False)

    async def _opened(self) -> Opened | None:
        """Open the store in a thread. If that takes long, start HTTP in the meantime.

        Returns None if the member is asked to stop: it does not wait for a long log to be read.
        """
        opening = asyncio.ensure_future(
            call_in_daemon("opening", partial(self._open_unless_stopping, self._verify_all))
        )
        await self._settles(opening, SLOW_OPENING_S)
        if not (opening.done() or self._stopping.is_set()):
            await self._http.start()
            await self._settles(opening)
        if opening.done():
            return opening.result()
        opening.cancel()
        logger.info("%s stops while its store is being opened", self._settings.self_id)
        return None

    def _open_unless_stopping(self, verify_all: bool) -> Opened | None:
        """Open the store; close it again if the member was asked to stop meanwhile. Blocks."""
        opened = self._open_store(verify_all)
        if not self._stopping.is_set():
            return opened
        opened[0].close()
        return None

    async def _settles(self, work: "asyncio.Future[Any]", timeout_s: float | None = None) -> None:
        """Wait for work; once the member is asked to stop, for at most `STOP_GRACE_S`."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                {work, stopping}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
        if self._stopping.is_set():
            await asyncio.wait({work}, timeout=STOP_GRACE_S)

    async def _stay_out(self, error: StoreError | OSError) -> None:
        """Show the reason over HTTP until the next attempt is due."""
        state = state_of(error)
        reason = str(error)
        logger.error("%s is out of service: %s", self._settings.self_id, reason)
        damage: StoreDamagedError | None = None
        if isinstance(error, StoreDamagedError) and not is_passing(error):
            damage = error
            self._shown.source = self._outage(state, reason)
            self._verify_all |= damage.damage is not Damage.HARD_STATE
            obstacle = await self._heal_unless_stopping(damage) if self._damaged else ""
            if obstacle:
                logger.error("%s: %s", self._settings.self_id, obstacle)
                reason = f"{reason}. {obstacle}"
        self._damaged = damage is not None
        delay_s = self._delay_s
        self._delay_s = min(self._retry_delay_max_s, 2 * delay_s)
        volume = NO_USAGE
        if state is StorageState.FULL:  # with another problem, the disk may hang
            with contextlib.suppress(OSError):
                volume = await asyncio.to_thread(volume_usage, Path(self._settings.store_base_dir))
        self._shown.source = self._outage(state, reason, volume=volume)
        await self._http.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _heal_unless_stopping(self, error: StoreDamagedError) -> str:
        healing = asyncio.ensure_future(self._heal(error))
        await self._settles(healing)
        if healing.done():
            return healing.result()
        healing.cancel()
        logger.info("%s stops while its store is being healed", self._settings.self_id)
        await asyncio.wait([healing])
        return ""

    def _outage(
        self,
        state: StorageState,
        reason: str,
        *,
        is_closed: bool = True,
        volume: VolumeUsage = NO_USAGE,
    ) -> Outage:
        return Outage(
            self._settings,
            self._version,
            state=state,
            reason=reason,
            closed=ClosedLog(shape_of(self._settings)) if is_closed else None,
            recovery=self._meters.recovery,
            volume_size_bytes=volume.size_bytes,
            volume_available_bytes=volume.available_bytes,
        )
