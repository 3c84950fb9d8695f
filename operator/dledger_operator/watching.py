"""Watches the API server with kopf until the process is to stop.

kopf ends on what it considers fatal: an ERROR event in a watch, a 401, a 404. It then cancels every
task that was started since it began, no matter who started it. So nothing carries over to the next
watch: workers, Leases and comparisons are created for one watch and end with it.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import kopf

from dledger_formats import interrupts
from dledger_operator import names
from dledger_operator.api_patience import EndlessBackoffs, keep_trying
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.handover.node_reads import NodeReads
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leases.duties import Duties
from dledger_operator.behaviors.served_namespaces import ServedNamespaces
from dledger_operator.behaviors.watch_check import WatchCheck
from dledger_operator.behaviors.workers import Workers
from dledger_operator.clients.custom_objects import PLURALS
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.config import OperatorSettings
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.probes import Probes

WATCH_SILENT_S_MAX: Final = 70.0
CLEANED_UP_S_MAX: Final = 5.0
"""How long kopf may take to call its cleanup handlers once it begins to end."""
KOPF_ENDS_S_MAX: Final = 1.0
"""How long kopf may take to end once these handlers are done."""
ENDED_S_MAX: Final = 10.0


class WatchError(Exception):
    """A watch has ended although the process was not asked to stop."""


class LeftTasksError(Exception):
    """Tasks of a watch do not end; the process must be restarted."""


def stopped_by_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    _take_signals(stopping)
    return stopping


def _take_signals(stopping: asyncio.Event) -> None:
    for number in interrupts.not_ignored((signal.SIGTERM, signal.SIGINT)):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)


async def run_unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run until the work is done, or cancel it once the event is set."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, waiting):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


async def watch_until_stopped(
    stopping: asyncio.Event,
    context: Context,
    settings: OperatorSettings,
    backoffs: EndlessBackoffs,
    served: ServedNamespaces,
    probes: Probes,
    wait_for_server: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Watch until `stopping` is set. After an error, the next watch begins once the API server
    answers again and the `served` namespaces have been checked again. Raises LeftTasksError.
    """

    async def watch() -> None:
        while not stopping.is_set():
            await run_unless(stopping, wait_for_server())
            if not stopping.is_set():
                await watch_once(stopping, context, settings, backoffs, served, probes)

    what = "watching the API server"
    await keep_trying(watch, what=what, backoffs=backoffs, fatal=(LeftTasksError,))


async def watch_once(
    stopping: asyncio.Event,
    context: Context,
    settings: OperatorSettings,
    backoffs: EndlessBackoffs,
    served: ServedNamespaces,
    probes: Probes,
) -> None:
    """Watch until `stopping` is set or the served namespaces change. Raises the errors that kopf
    considers fatal, or WatchError.
    """
    nodes = Nodes()
    nodes.readable = context.nodes.readable
    duties = new_duties(context.api, settings)
    workers = Workers(replace(context, nodes=nodes, duties=duties))
    watches = WatchCheck(
        context.api,
        PLURALS,
        served.watched,
        clock=context.clock,
        random=context.random,
        on_behind=context.metrics.set_watch_behind,
    )
    reads = NodeReads(context.api, nodes, context.random, workers.node_differs)
    ending = asyncio.Event()

    async def stop() -> None:
        probes.waits()
        try:
            await workers.stop()
            await duties.stop()
        finally:
            ending.set()

    memo = kopf.Memo(workers=workers, watches=watches, stop=stop)
    changed = asyncio.create_task(served.changed(watches.refused_for_s), name="served namespaces")
    checking = [
        changed,
        asyncio.create_task(watches.run(), name="comparing the watches"),
        asyncio.create_task(reads.run(), name="reading Nodes again"),
    ]

    def check() -> dict[str, int]:
        watches.check()
        return workers.check()

    duties.start(workers.duties_changed)
    probes.watches(check)
    try:
        await _run_kopf(memo, settings, backoffs, served.watched, stopping, changed, ending)
    finally:
        for task in checking:
            task.cancel()
        await stop()
        _say_that_nothing_runs(context.metrics)


def _say_that_nothing_runs(metrics: OperatorMetrics) -> None:
    metrics.lease_held.set(0)
    metrics.namespaces_of_others.set(0)
    for kind in PLURALS:
        metrics.set_watch_behind(kind, 0.0)


async def _run_kopf(
    memo: kopf.Memo,
    settings: OperatorSettings,
    backoffs: EndlessBackoffs,
    namespaces: Sequence[str],
    stopping: asyncio.Event,
    changed: "asyncio.Task[None]",
    ending: asyncio.Event,
) -> None:
    """Run kopf until `stopping` is set or the task `changed` ends, then end every task that was
    started meanwhile.

    A watcher of kopf can swallow its cancellation, and kopf then waits for it forever, before or
    after its cleanup handlers, which set `ending`. So each of these two waits has a time limit.
    """
    before, kopf_stops = asyncio.all_tasks(), asyncio.Event()
    tasks = await kopf.spawn_tasks(
        registry=kopf.get_default_registry(),
        settings=kopf_settings(backoffs),
        memo=memo,
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=namespaces,
        stop_flag=kopf_stops,
    )
    _take_signals(stopping)  # kopf has installed its own handlers
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=before), name="kopf")
    cleaned_up = asyncio.create_task(ending.wait())
    begins = {running, changed, *tasks, asyncio.create_task(stopping.wait())}
    try:
        await asyncio.wait(begins, return_when=asyncio.FIRST_COMPLETED)
        kopf_stops.set()
        await asyncio.wait(
            {running, cleaned_up},
            timeout=CLEANED_UP_S_MAX,
            return_when=asyncio.FIRST_COMPLETED,
        )
        await asyncio.wait({running}, timeout=KOPF_ENDS_S_MAX)
    finally:
        await end_all_but(before)
    if not running.cancelled():
        running.result()
    if stopping.is_set():
        return
    if not changed.done():
        raise WatchError("a watch has failed (see above)")
    changed.result()


async def end_all_but(tasks: set["asyncio.Task[Any]"]) -> None:
    """Cancel all other tasks repeatedly until they have ended. Raises LeftTasksError."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + ENDED_S_MAX
    while left := asyncio.all_tasks() - tasks - {asyncio.current_task()}:
        if loop.time() > deadline_s:
            raise LeftTasksError(f"tasks do not end: {sorted(task.get_name() for task in left)}")
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)


def new_duties(api: KubeApi, settings: OperatorSettings) -> Duties:
    """Return the duties of a process that holds no Lease yet."""
    return Duties(api.leases, settings.leases, clock=time.monotonic, now=utc_now)


def kopf_settings(backoffs: EndlessBackoffs) -> kopf.OperatorSettings:
    """Return settings that limit kopf to objects with our labels; kopf itself writes nothing."""
    settings = kopf.OperatorSettings()
    # Otherwise kopf kills the process ten minutes after a watch has failed.
    settings.process.ultimate_exiting_timeout = None
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


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
