"""The process of the operator: reads settings, opens connections and runs kopf."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dledger_formats import log_lines
from dledger_formats.console import readable
from dledger_operator import config, handlers
from dledger_operator.api_patience import EndlessBackoffs, keep_trying, told_if_late
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.phases import Phases
from dledger_operator.behaviors.report.event_recorder import EventRecorder
from dledger_operator.behaviors.served_namespaces import ServedNamespaces
from dledger_operator.clients.canary_client import CanaryClient
from dledger_operator.clients.errors import KubeError, NotServedError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.config import OperatorSettings
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.probes import Probes
from dledger_operator.watching import (
    LeftTasksError,
    new_duties,
    run_unless,
    stopped_by_signals,
    utc_now,
    watch_until_stopped,
)

logger = logging.getLogger(__name__)

RECONCILES_AT_ONCE_MAX: Final = 8
NODES_FORBIDDEN: Final = (
    "this account may not list Nodes, so leaders are not moved off nodes that are being drained, "
    "and no leader is preferred by zone or label: grant it the chart's ClusterRole for nodes and "
    "restart the operator, or set watchNodes=false"
)
USAGE_ERROR: Final = 2
START_ERROR: Final = 1
CHATTY: Final = ("httpx2", "httpcore2", "aiohttp.access", "kopf.objects")
"""Loggers that write a line per request and would drown the operator's own messages."""


class ListenError(Exception):
    """A port cannot be listened on; the message names its setting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    try:
        settings = config.read(sys.argv[1:] if arguments is None else arguments, os.environ)
    except config.SettingsError as error:
        print(f"dledger-operator: {readable(str(error))}", file=sys.stderr)  # noqa: T201 - logging is not set up
        return USAGE_ERROR
    log_lines.configure(log_format=settings.log_format, level=settings.log_level, chatty=CHATTY)
    try:
        asyncio.run(_run_or_exit(settings))
    except (KubeError, ListenError) as error:
        logger.critical("%s", error)
        return START_ERROR
    return 0


async def _run_or_exit(settings: OperatorSettings) -> None:
    """Run; exit the process at once if tasks do not end, because asyncio would wait for them."""
    try:
        await run(settings)
    except LeftTasksError as error:
        logger.critical("%s", error)
        os._exit(START_ERROR)


async def run(settings: OperatorSettings) -> None:
    """Run the operator. Raises NotServedError if the CRDs are missing.

    While the API server is down or refuses, the operator waits without a limit. Namespaces that
    cannot be read are left out meanwhile, unless none can be read.
    """

    async def check_at_start() -> None:
        await served.look()
        if settings.watch_nodes:
            context.nodes.readable = await context.api.may_list_nodes()

    async def wait_for(run: Callable[[], Awaitable[None]], *fatal: type[Exception]) -> None:
        what = f"the API server at {context.api.server}"
        await keep_trying(told_if_late(run, what), what=what, backoffs=backoffs, fatal=fatal)

    stopping, probes = stopped_by_signals(), Probes()
    async with (
        open_context(settings) as context,
        serve_metrics(context.metrics, settings.metrics_port),
        serve(
            {"/healthz": probes.healthz, "/readyz": probes.readyz},
            settings.health_port,
            setting="health_port",
        ),
    ):
        backoffs = EndlessBackoffs(context.random)
        served = ServedNamespaces(
            context.api,
            settings.watch_namespaces,
            on_left_out=context.metrics.namespaces_left_out.set,
        )
        await run_unless(stopping, wait_for(check_at_start, NotServedError))
        if stopping.is_set():
            return
        if context.nodes.readable:
            handlers.watch_nodes()
        elif settings.watch_nodes:
            logger.warning(NODES_FORBIDDEN)
        await watch_until_stopped(
            stopping, context, settings, backoffs, served, probes, lambda: wait_for(served.look)
        )


@asynccontextmanager
async def open_context(settings: OperatorSettings) -> AsyncIterator[Context]:
    """Open the clients that all control loops share, and close them on exit."""
    api, member_http = KubeApi.open(), MemberHttpClient.open()
    try:
        yield Context(
            api=api,
            member_http=member_http,
            leader_requests=MemberRemotingClient(),
            canaries=CanaryClient(),
            nodes=Nodes(),
            duties=new_duties(api, settings),
            metrics=OperatorMetrics(
                clock=time.monotonic, release=settings.leases.release if settings.leases else ""
            ),
            events=EventRecorder(api, now=utc_now),
            node_image=settings.image_defaults(settings.node_image),
            audit_image=settings.image_defaults(settings.audit_image),
            audit_driver_role=settings.audit_driver_role,
            audit_api_ports=settings.audit_api_ports,
            clock=time.monotonic,
            now=utc_now,
            random=Random(),
            reconcile_slots=asyncio.Semaphore(RECONCILES_AT_ONCE_MAX),
            phases=Phases(),
        )
    finally:
        await member_http.close()
        await api.close()


@asynccontextmanager
async def serve_metrics(metrics: OperatorMetrics, port: int) -> AsyncIterator[None]:
    """Serve `/metrics` until the context exits.

    Pages are built in a thread, one at a time: for a hundred groups, a page takes longer than the
    event loop, which follows the leaders, may be blocked.
    """
    one_at_a_time = asyncio.Lock()

    async def show(_: web.Request) -> web.Response:
        async with one_at_a_time:
            body = await asyncio.to_thread(generate_latest, metrics.registry)
        response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
        # kopf cancels connection tasks when it ends, so a later scrape would get no answer.
        response.force_close()
        return response

    async with serve({"/metrics": show}, port, setting="metrics_port"):
        yield


@asynccontextmanager
async def serve(
    pages: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]],
    port: int,
    *,
    setting: str,
) -> AsyncIterator[None]:
    """Serve pages, by path, until the context exits. Raises ListenError, which names `setting`."""
    application = web.Application()
    for path, show in pages.items():
        application.router.add_get(path, show)
    runner = web.AppRunner(application, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        # A pod may have IPv4 addresses, IPv6 addresses or both: without a host, the site takes all.
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            why = error.strerror if error.errno is None else os.strerror(error.errno)
            raise ListenError(
                f"cannot listen on port {port}: {why}; see {config.variable(setting)}"
            ) from error
        yield
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
