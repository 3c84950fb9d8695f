"""What one watch starts ends with it, whatever kopf does."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest

from dledger_kube.worker_context import without_server
from dledger_operator import watching
from dledger_operator.api_patience import EndlessBackoffs
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.served_namespaces import ServedNamespaces
from dledger_operator.clients.member_http import MemberHttpClient
from dledger_operator.config import OperatorSettings
from dledger_operator.probes import Probes
from dledger_operator.watching import (
    LeftTasksError,
    WatchError,
    end_all_but,
    stopped_by_signals,
    watch_once,
)

ENDED_S_MAX = 30.0
"""Less than the watcher sleeps."""
STUBBORN = """
import asyncio, contextlib, sys
from dledger_operator import main
from dledger_operator.watching import LeftTasksError

async def stubborn():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

async def run(settings):
    kept.append(asyncio.create_task(stubborn()))
    await asyncio.sleep(0)
    raise LeftTasksError("tasks do not end")

kept = []
main.run = run
sys.exit(main.main(["--node-image", "a:1", "--audit-image", "a:1"]))
"""


def names() -> set[str]:
    """Names of the tasks that run."""
    return {task.get_name() for task in asyncio.all_tasks()}


class Kopf:
    """kopf as it is started here; `ends` says how it ends."""

    def __init__(self, ends: Callable[[Any], Any]) -> None:
        self._ends = ends
        self.ran_beside: set[str] = set()

    async def spawn_tasks(
        self, *, memo: Any, namespaces: Any, stop_flag: asyncio.Event, **_: Any
    ) -> list[asyncio.Task[None]]:
        assert namespaces == ("a",)
        self.stop_flag = stop_flag
        return [asyncio.create_task(self._ends(memo), name="a root task")]

    async def run_tasks(self, tasks: list[asyncio.Task[None]], **_: Any) -> None:
        self.ran_beside = names()
        await asyncio.gather(*tasks)


async def never(_: object) -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


async def watched(
    monkeypatch: pytest.MonkeyPatch,
    made: Kopf,
    stopping: asyncio.Event,
    changed: Callable[[object], Awaitable[None]] | None = None,
) -> Context:
    """Run one watch of a namespace; return the context that it had. The watch also ends when
    `changed` does.
    """
    context = without_server(cast("MemberHttpClient", None))
    context.nodes.readable = True
    for name in ("spawn_tasks", "run_tasks"):
        monkeypatch.setattr(kopf, name, getattr(made, name))
    settings = OperatorSettings(node_image="a:1", audit_image="a:1", watch_namespaces=("a", "b"))
    served = cast("ServedNamespaces", SimpleNamespace(watched=("a",), changed=changed or never))
    await watch_once(stopping, context, settings, EndlessBackoffs(Random(1)), served, Probes())
    return context


async def test_a_watch_compares_and_reads_again_and_nothing_of_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping, before = asyncio.Event(), names()

    async def end(memo: Any) -> None:
        await memo.stop()
        stopping.set()

    made = Kopf(end)
    context = await watched(monkeypatch, made, stopping)

    assert {"comparing the watches", "reading Nodes again"} <= made.ran_beside
    await asyncio.sleep(0)
    assert names() == before
    held = context.metrics.registry.get_sample_value("dledger_operator_lease_held", {"release": ""})
    assert held == 0.0


@pytest.mark.parametrize("calls_cleanup", [True, False])
async def test_a_watcher_that_swallows_its_cancellation_does_not_keep_the_operator(
    monkeypatch: pytest.MonkeyPatch, calls_cleanup: bool
) -> None:
    """kopf waits for it, without an end, before its cleanup handlers or after them."""
    monkeypatch.setattr(watching, "CLEANED_UP_S_MAX", 0.1)
    monkeypatch.setattr(watching, "KOPF_ENDS_S_MAX", 0.1)
    stopping = asyncio.Event()

    async def swallow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    async def end(memo: Any) -> None:
        watcher = asyncio.create_task(swallow(), name="a watcher")
        await asyncio.sleep(0)
        watcher.cancel()
        stopping.set()
        if calls_cleanup:
            await memo.stop()
        await asyncio.wait([watcher])

    began_s = time.monotonic()
    await watched(monkeypatch, Kopf(end), stopping)

    assert time.monotonic() - began_s < ENDED_S_MAX
    assert "a watcher" not in names()


async def test_a_watch_that_ends_untold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(_: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(WatchError):
        await watched(monkeypatch, Kopf(end), asyncio.Event())


async def test_a_watch_ends_without_an_error_when_other_namespaces_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def end(memo: Any) -> None:
        await made.stop_flag.wait()
        await memo.stop()

    async def changed(_: object) -> None:
        await asyncio.sleep(0)

    made, before = Kopf(end), names()
    await watched(monkeypatch, made, asyncio.Event(), changed)

    await asyncio.sleep(0)
    assert names() == before


async def test_tasks_that_do_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ENDED_S_MAX", 0.1)
    before, gives_in = asyncio.all_tasks(), asyncio.Event()

    async def stubborn() -> None:
        while not gives_in.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    with pytest.raises(LeftTasksError, match="stubborn"):
        await end_all_but(before)

    gives_in.set()
    task.cancel()
    await asyncio.wait([task])


def test_a_process_with_tasks_that_do_not_end_exits() -> None:
    """asyncio waits for them at its own end."""
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN], capture_output=True, timeout=120, check=False
    )

    assert done.returncode == 1
    assert b"tasks do not end" in done.stderr


async def test_an_operator_that_was_started_to_ignore_ctrl_c_ignores_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stopped_by_signals()
        after = signal.getsignal(signal.SIGINT)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGINT, before)

    assert after is signal.SIG_IGN
