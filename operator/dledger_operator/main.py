"""The console script `dledger-operator`: reads settings, opens connections and runs kopf."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Final

import kopf
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from dledger_formats import log_lines
from dledger_operator import config, handlers, names
from dledger_operator.api_patience import EndlessBackoffs, keep_trying
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.handover.nodes import Nodes
from dledger_operator.behaviours.leases.duties import Duties
from dledger_operator.behaviours.phases import Phases
from dledger_operator.behaviours.report.event_recorder import EventRecorder
from dledger_operator.behaviours.watch_check import WatchCheck
from dledger_operator.behaviours.workers import Workers
from dledger_operator.clients.canary_client import CanaryClient
from dledger_operator.clients.custom_objects import PLURALS
from dledger_operator.clients.errors import KubeError, NotFoundError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.clients.member_remoting import MemberRemotingClient
from dledger_operator.config import OperatorSettings
from dledger_operator.metrics import OperatorMetrics

logger = logging.getLogger(__name__)

RECONCILES_AT_ONCE_MAX: Final = 8
WATCH_SILENT_S_MAX: Final = 70.0
NODES_FORBIDDEN: Final = (
    "this account may not list Nodes, so leaders are not moved off nodes that are being drained, "
    "and no leader is preferred by zone or label: grant it the chart's ClusterRole for nodes and "
    "restart the operator, or set watchNodes=false"
)
USAGE_ERROR: Final = 2
START_ERROR: Final = 1
CHATTY: Final = ("httpx2", "httpcore2", "aiohttp.access", "kopf.objects", "kopf.activities.probe")
"""Loggers that write a line per request and would drown the operator's own messages."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    try:
        settings = config.read(sys.argv[1:] if arguments is None else arguments, os.environ)
    except config.SettingsError as error:
        print(f"dledger-operator: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up
        return USAGE_ERROR
    log_lines.configure(log_format=settings.log_format, level=settings.log_level, chatty=CHATTY)
    try:
        asyncio.run(run(settings))
    except KubeError as error:
        logger.critical("%s", error)
        return START_ERROR
    return 0


async def run(settings: OperatorSettings) -> None:
    """Run the operator. Raises NotFoundError if the CRDs are missing.

    It waits for an API server that is down or refuses, for as long as that takes.
    """

    async def check() -> None:
        for namespace in settings.watch_namespaces or (None,):
            await context.api.check_served(namespace)
        if settings.watch_nodes:
            context.nodes.readable = await context.api.may_list_nodes()

    async def watch() -> None:
        await kopf.operator(
            registry=kopf.get_default_registry(),
            settings=kopf_settings(backoffs),
            memo=kopf.Memo(workers=workers, watches=watches),
            standalone=True,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
            liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
        )

    async with (
        open_context(settings) as context,
        serve_metrics(context.metrics, settings.metrics_port),
    ):
        backoffs = EndlessBackoffs(context.random)
        async with serve_waiting(settings.health_port):
            what = "the API server"
            await keep_trying(check, what=what, backoffs=backoffs, fatal=(NotFoundError,))
        if context.nodes.readable:
            handlers.watch_nodes()
        elif settings.watch_nodes:
            logger.warning(NODES_FORBIDDEN)
        workers = Workers(context)
        watches = WatchCheck(
            context.api,
            PLURALS,
            settings.watch_namespaces,
            clock=context.clock,
            random=context.random,
            on_behind=context.metrics.set_watch_behind,
        )
        context.duties.start(workers.duties_changed)
        comparing = asyncio.create_task(watches.run(), name="comparing the watches")
        try:
            await keep_trying(watch, what="watching the API server", backoffs=backoffs)
        finally:
            comparing.cancel()
            await workers.stop()
            await context.duties.stop()


def kopf_settings(backoffs: EndlessBackoffs) -> kopf.OperatorSettings:
    """Restrict kopf to objects with our labels and to read access; kopf itself writes nothing."""
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = backoffs
    # The server sends a bookmark at least once a minute; a silent watch is broken.
    settings.watching.inactivity_timeout = WATCH_SILENT_S_MAX
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.connect_timeout = 5.0
    settings.networking.request_timeout = 30.0
    settings.persistence.finalizer = f"{names.API_GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.API_GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.API_GROUP)
    selectors = settings.watching.label_selectors
    for resource in (
        ("", "v1", "pods"),
        ("", "v1", "services"),
        ("", "v1", "configmaps"),
        ("", "v1", "serviceaccounts"),
        ("policy", "v1", "poddisruptionbudgets"),
        ("", "v1", "persistentvolumeclaims"),
        ("apps", "v1", "statefulsets"),
        ("discovery.k8s.io", "v1", "endpointslices"),
        ("networking.k8s.io", "v1", "networkpolicies"),
    ):
        selectors[resource] = names.GROUP_LABEL
    selectors["batch", "v1", "jobs"] = names.AUDIT_LABEL
    return settings


@asynccontextmanager
async def open_context(settings: OperatorSettings) -> AsyncIterator[Context]:
    """Open the clients that all control loops share, and close them on exit."""
    api, member_http = KubeApi.open(), MemberHttpClient.open()
    duties = Duties(api.leases, settings.leases, clock=time.monotonic, now=utc_now)
    try:
        yield Context(
            api=api,
            member_http=member_http,
            leader_requests=MemberRemotingClient(),
            canaries=CanaryClient(),
            nodes=Nodes(),
            duties=duties,
            metrics=OperatorMetrics(clock=time.monotonic),
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
async def serve_waiting(port: int) -> AsyncIterator[None]:
    """Answer the probes until the context exits: a process that waits is alive."""

    async def show(_: web.Request) -> web.Response:
        return web.json_response({"waiting": "the API server"})

    async with serve_page("/healthz", show, port):
        yield


@asynccontextmanager
async def serve_metrics(metrics: OperatorMetrics, port: int) -> AsyncIterator[None]:
    """Serve `/metrics` until the context exits.

    A page is made in a thread, one at a time: for a hundred groups it takes longer than a turn of
    the loop that follows leaders may last.
    """
    one_at_a_time = asyncio.Lock()

    async def show(_: web.Request) -> web.Response:
        async with one_at_a_time:
            body = await asyncio.to_thread(generate_latest, metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async with serve_page("/metrics", show, port):
        yield


@asynccontextmanager
async def serve_page(
    path: str, show: Callable[[web.Request], Awaitable[web.Response]], port: int
) -> AsyncIterator[None]:
    """Serve one page until the context exits."""
    application = web.Application()
    application.router.add_get(path, show)
    runner = web.AppRunner(application, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - scraped from other pods
        yield
    finally:
        await runner.cleanup()


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


if __name__ == "__main__":
    sys.exit(main())
