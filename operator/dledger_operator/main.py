"""The console script `dledger-operator`: settings, connections, metrics, and kopf in-process."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Final

import kopf
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

import dledger_operator.handlers  # noqa: F401 - registers the handlers with kopf
from dledger_formats import log_lines
from dledger_operator import config, names
from dledger_operator.behaviours.context import Tools
from dledger_operator.behaviours.report.event_recorder import NewsDesk
from dledger_operator.behaviours.workers import Workers
from dledger_operator.clients.errors import KubeError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.clients.member_pages import NodePages
from dledger_operator.clients.member_requests import MemberRequests
from dledger_operator.config import OperatorSettings
from dledger_operator.metrics import OperatorMetrics

logger = logging.getLogger(__name__)

RECONCILES_AT_ONCE_MAX: Final = 8
USAGE_ERROR: Final = 2
START_ERROR: Final = 1
CHATTY: Final = ("httpx2", "httpcore2", "aiohttp.access", "kopf.objects", "kopf.activities.probe")
"""Loggers that tell of every request, which drowns what the operator does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
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
    """Run the operator; KubeError when it cannot begin."""
    async with open_tools(settings) as tools, serve_metrics(tools.metrics, settings.metrics_port):
        for namespace in settings.watch_namespaces or (None,):
            await tools.api.check_served(namespace)
        await kopf.operator(
            registry=kopf.get_default_registry(),
            settings=kopf_settings(),
            memo=kopf.Memo(workers=Workers(tools)),
            standalone=True,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
            liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
        )


def kopf_settings() -> kopf.OperatorSettings:
    """Make kopf watch only what is ours, ask for no more rights than that, and write nothing."""
    settings = kopf.OperatorSettings()
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
        ("apps", "v1", "statefulsets"),
        ("discovery.k8s.io", "v1", "endpointslices"),
    ):
        selectors[resource] = names.GROUP_LABEL
    selectors["batch", "v1", "jobs"] = names.AUDIT_LABEL
    return settings


@asynccontextmanager
async def open_tools(settings: OperatorSettings) -> AsyncIterator[Tools]:
    """Open what every behaviour works with, and close it in the end."""
    api, pages = KubeApi.open(), NodePages.open()
    try:
        yield Tools(
            api=api,
            pages=pages,
            requests=MemberRequests(),
            metrics=OperatorMetrics(),
            news=NewsDesk(api, now=utc_now),
            node_image=settings.image_defaults(settings.node_image),
            audit_image=settings.image_defaults(settings.audit_image),
            clock=time.monotonic,
            now=utc_now,
            random=Random(),
            reconcile_slots=asyncio.Semaphore(RECONCILES_AT_ONCE_MAX),
        )
    finally:
        await pages.close()
        await api.close()


@asynccontextmanager
async def serve_metrics(metrics: OperatorMetrics, port: int) -> AsyncIterator[None]:
    """Serve `/metrics` for as long as the context lasts."""

    async def show(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/metrics", show)
    runner = web.AppRunner(application, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - scraped from other pods
        yield
    finally:
        await runner.cleanup()


def utc_now() -> datetime:
    """The time of day."""
    return datetime.now(UTC)


if __name__ == "__main__":
    sys.exit(main())
