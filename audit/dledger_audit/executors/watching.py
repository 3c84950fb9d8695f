"""Ends work for which there are no executors. Spark itself would wait forever."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

from dledger_audit.executors.reasons import UNKNOWN

INTERVAL_S: Final = 1.0
ASK_S: Final = 10.0
"""How often a cause is asked for while work has no executor."""
ALL_REGISTERED_S_MAX: Final = 60.0
"""How long the first tasks wait for all executors. After that, tasks go to those that run."""

TELL_S: Final = 5.0
"""How often the wait for executors is reported."""


class NoExecutorsError(Exception):
    """Spark had work and no executor for too long; the message says why."""


class Patience:
    """How long work may wait without an executor."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._since_s: float | None = None

    def is_over(self, *, now_s: float, executors: int, jobs: int) -> bool:
        """Record what runs now; return whether work has waited too long."""
        if executors or not jobs:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._within_s


@contextmanager
def watched(context: SparkContext, within_s: float, why: Callable[[], str]) -> Iterator[None]:
    """Raise NoExecutorsError if work of this block has no executor for `within_s` seconds.

    The error is also raised if Spark ended before the work was done. A lost executor does not count
    if another one runs or starts in time. `why` is called while work has no executor, because Spark
    soon removes a pod that failed.
    """
    causes = Causes(why)
    reasons: list[str] = []
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, Patience(within_s), done, reasons, causes), daemon=True
    )
    watcher.start()
    try:
        yield
    except Exception as error:
        if reasons:
            raise NoExecutorsError(
                f"no executor of Spark ran for {within_s:g} s: {reasons[0]}"
            ) from error
        if has_ended(context):
            raise NoExecutorsError(
                f"Spark ended before the work was done: {causes.ask()}"
            ) from error
        raise
    finally:
        done.set()
        watcher.join(timeout=30)


class Causes:
    """Why there are no executors, as far as that is known."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why
        self._last = UNKNOWN

    def ask(self) -> str:
        """Ask for the cause; return the last known one if it is unknown now."""
        try:
            cause = self._why()
        except Exception:  # the run must end also if its cause cannot be found
            traceback.print_exc()
            return self._last
        if cause != UNKNOWN:
            self._last = cause
        return self._last


def has_ended(context: SparkContext) -> bool:
    """Return whether Spark has stopped by itself, or its JVM is gone."""
    try:
        return bool(context._jsc.sc().isStopped())
    except (OSError, Py4JNetworkError):
        return True


def wait_for_all(context: SparkContext, executors: int, within_s: float) -> int:
    """Wait for all executors, but not forever; return how many there are.

    Without the wait, the first one would take all tasks.
    """
    now_s = reported_s = time.monotonic()
    until_s = now_s + min(within_s, ALL_REGISTERED_S_MAX)
    while not has_ended(context):
        running, now_s = _running(context), time.monotonic()
        if running >= executors or now_s >= until_s:
            return running
        if now_s - reported_s >= TELL_S:
            reported_s = now_s
            sys.stderr.write(
                f"dledger-audit: waits for executors of Spark, {running} of {executors} run; it "
                f"reads without the others in {until_s - now_s:.0f} s if one runs\n"
            )
        time.sleep(INTERVAL_S / 4)
    return 0


def _running(context: SparkContext) -> int:
    """Return how many executors there are; the driver is not one of them."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _watch(
    context: SparkContext,
    patience: Patience,
    done: threading.Event,
    reasons: list[str],
    causes: Causes,
) -> None:
    """Check once a second; once the patience is over, cancel all work, also later work."""
    asked_s: float | None = None
    while not done.wait(INTERVAL_S):
        if has_ended(context):
            return
        try:
            spark = context._jsc.sc()
            jobs, executors = len(spark.statusTracker().getActiveJobIds()), _running(context)
            now_s = time.monotonic()
            if patience.is_over(now_s=now_s, executors=executors, jobs=jobs):
                if not reasons:
                    reasons.append(causes.ask())
                spark.cancelAllJobs()
            elif jobs and not executors and (asked_s is None or now_s - asked_s >= ASK_S):
                asked_s = now_s
                causes.ask()
        except Exception:  # without a watcher, the run might wait forever
            traceback.print_exc()
