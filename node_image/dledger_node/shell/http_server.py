"""The member's HTTP server: it listens from the first outage or period of service to the end."""

import asyncio

from aiohttp import web

from dledger_formats.settings import NodeSettings
from dledger_node.closing import Closing
from dledger_node.config import join_address
from dledger_node.errors import ListenError
from dledger_node.http import metrics, pages
from dledger_node.http.auditors import Auditors
from dledger_node.http.connection_limits import LimitedConnections
from dledger_node.http.deputy import Deputy
from dledger_node.shell.current_source import Source
from dledger_node.shell.meters import Meters


class HttpServer:
    """Serves the pages of a source, and has the deputy answer while the event loop cannot."""

    def __init__(
        self, settings: NodeSettings, source: Source, meters: Meters, auditors: Auditors | None
    ) -> None:
        """Without `auditors`, anybody may read the log from the pages."""
        self._settings = settings
        self._source = source
        self._meters = meters
        self._auditors = auditors
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._deputy: Deputy | None = None

    async def start(self) -> None:
        """Begin to listen, unless that has been done. Raises ListenError."""
        if self._runner is not None:
            return
        meters = self._meters
        limited = LimitedConnections(begin_turn=meters.loop_lag.begin_turn, traffic=meters.traffic)
        runner = web.AppRunner(
            pages.application(
                self._source,
                metrics.registry(self._source, meters, self._auditors),
                [limited.middleware],
                self._auditors,
                limited.turns,
            ),
            handle_signals=False,
            access_log=None,
            shutdown_timeout=0.5,
        )
        await runner.setup()
        self._runner = runner
        assert runner.server is not None
        host, port = self._settings.listen_host, self._settings.http_port
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                limited.guard(runner.server), host, port, backlog=128
            )
        except OSError as error:
            where = join_address(host, port)
            raise ListenError(f"cannot listen on {where}: {error}") from error
        self._deputy = Deputy(listener.fileno() for listener in self._listener.sockets)

    async def close(self) -> None:
        """Stop listening, and close all connections. Raises the first error."""
        closing = Closing()
        if self._deputy is not None:
            closing.step(self._deputy.close)
        if self._listener is not None:
            closing.step(self._listener.close)
        if self._runner is not None:
            await closing.wait(self._runner.cleanup)
        closing.end()
