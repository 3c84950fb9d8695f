"""Ends work for which there are no executors. Spark itself would wait forever."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext

INTERVAL_S: Final = 1.0
ALL_REGISTERED_S_MAX: Final = 60.0
"""How long the first tasks wait for all executors. Later ones go to those that are there."""


class NoExecutorsError(Exception):
    """Spark had work and no executor for too long; the message says why."""


class Patience:
    """How long work may lie without an executor."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._since_s: float | None = None

    def is_over(self, *, now_s: float, executors: int, jobs: int) -> bool:
        """Take what is seen now; tell whether the work has waited too long."""
        if executors or not jobs:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._within_s


@contextmanager
def watched(context: SparkContext, within_s: float, why: Callable[[], str]) -> Iterator[None]:
    """Raise NoExecutorsError once work of this block has had no executor for so long.

    An executor that is lost does not count if another one is there or comes in time. `why` is asked
    when the time is over.
    """
    reasons: list[str] = []
    done = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, Patience(within_s), done, reasons, why), daemon=True
    )
    watcher.start()
    try:
        yield
    except Exception as error:
        if reasons:
            raise NoExecutorsError(
                f"no executor of Spark ran for {within_s:g} s: {reasons[0]}"
            ) from error
        if context._jsc.sc().isStopped():
            raise NoExecutorsError(f"too many executors of Spark failed: {why()}") from error
        raise
    finally:
        done.set()
        watcher.join(timeout=30)


def wait_for_all(context: SparkContext, executors: int, within_s: float) -> int:
    """Wait for all executors, but not forever: the first one would take all tasks. Return how many
    there are.
    """
    until_s = time.monotonic() + min(within_s, ALL_REGISTERED_S_MAX)
    while not context._jsc.sc().isStopped():
        running = _running(context)
        if running >= executors or time.monotonic() >= until_s:
            return running
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
    why: Callable[[], str],
) -> None:
    """Look once a second; once the patience is over, cancel all work, also what follows."""
    spark = context._jsc.sc()
    while not done.wait(INTERVAL_S):
        if spark.isStopped():
            return
        jobs = len(spark.statusTracker().getActiveJobIds())
        if patience.is_over(now_s=time.monotonic(), executors=_running(context), jobs=jobs):
            if not reasons:
                reasons.append(why())
            spark.cancelAllJobs()
