"""Runs threads one at a time; at each point a strategy chooses which one continues.

The threads are real ones, so the code under test is unchanged. Only the current one runs; each of
the others waits at its gate. A thread that waits for a lock or for another thread is not runnable.
If none is runnable before all have ended, that is a deadlock.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from dledger_schedules.strategies import Strategy

POINTS_MAX: Final = 20_000
TRACE_MAX: Final = 5_000


class DeadlockError(Exception):
    """No thread can continue, or the threads never end."""


class AbandonedError(BaseException):
    """Ends a thread whose schedule has failed."""


class Task:
    """One scheduled thread's work."""

    def __init__(self, name: str, work: Callable[[], Any], worker: "_Worker") -> None:
        self.name = name
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._work = work
        self.worker = worker
        self.may_run: Callable[[], bool] | None = None
        """The condition that a blocked task waits for; None if it is not blocked."""

    def run(self) -> None:
        """Do the work on the calling thread, and keep its result or its error."""
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error


class Scheduler:
    """Runs one schedule after another; its threads are reused."""

    def __init__(self) -> None:
        self.points = 0
        self.trace: list[str] = []
        """What each thread was about to do; only if `keeps_trace`."""
        self.keeps_trace = False
        self._on_point: Callable[[int], None] = lambda _: None
        self._workers: list[_Worker] = []
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._abandoned = False
        self._lines_left = 0
        self._over = threading.Lock()
        self._over.acquire()
        self._ending = threading.Lock()

    def run(
        self,
        work: Callable[[], None],
        strategy: "Strategy[Task]",
        on_point: Callable[[int], None],
        traced: Callable[..., Any] | None = None,
    ) -> None:
        """Run `work` as the first thread; return once all threads have ended.

        `on_point` is called with the number of each point, on the thread that reached it. `traced`
        is a trace function that calls `line`. Raises the first thread's error, or DeadlockError.
        """
        self._strategy, self._on_point, self._traced = strategy, on_point, traced
        self.points, self.trace, self._abandoned = 0, [], False
        self._deadlock: DeadlockError | None = None
        for worker in self._workers:
            worker.is_free = True
        self._tasks = []
        self._lines_left = strategy.lines()
        first = self._new_task("loop", work)
        self._current = first
        first.worker.gate.release()
        self._over.acquire()
        self._current = None
        if self._deadlock is not None:
            raise self._deadlock
        if first.error is not None:
            raise first.error

    def spawn(self, name: str, work: Callable[[], Any]) -> Task:
        """Begin another thread; it runs once it is chosen."""
        task = self._new_task(name, work)
        self.point(f"begin {name}")
        return task

    def join(self, task: Task) -> None:
        """Wait until a thread has ended."""
        self.block(lambda: task.done, f"join {task.name}")

    def join_any(self, tasks: Sequence[Task]) -> None:
        """Wait until one of several threads has ended."""
        self.block(lambda: any(task.done for task in tasks), "join any")

    @property
    def schedules_this_thread(self) -> bool:
        """Whether the calling thread is the one that runs now."""
        current = self._current
        return current is not None and current.worker.ident == threading.get_ident()

    def point(self, what: str) -> None:
        """Let another thread run, if the strategy chooses one."""
        current = self._begin_point(what)
        self._go_on(current, self._strategy.next(current, self._runnable()))

    def line(self, frame: FrameType) -> None:
        """Count a line; let another thread run if the strategy wants it here."""
        self._lines_left -= 1
        if self._lines_left <= 0 and self.schedules_this_thread:
            self._lines_left = self._strategy.lines()
            name = frame.f_code.co_filename.rpartition("/")[2]
            current = self._begin_point(f"{name}, line {frame.f_lineno}")
            self._go_on(current, self._strategy.next_at_a_line(current, self._runnable()))

    def thread_name(self) -> str | None:
        """Return the name of the calling thread; None if it is not scheduled."""
        current = self._current
        return current.name if current is not None and self.schedules_this_thread else None

    def place(self, frame: FrameType) -> None:
        """Let another thread run at a place, if the strategy wants it now."""
        name = frame.f_code.co_filename.rpartition("/")[2]
        current = self._begin_point(f"{name}, line {frame.f_lineno}")
        self._go_on(current, self._strategy.next_at_a_line(current, self._runnable()))

    def block(self, may_run: Callable[[], bool], what: str) -> None:
        """Let others run until a condition holds."""
        current = self._begin_point(what)
        current.may_run = may_run
        runnable = self._runnable()
        if not runnable:
            self._fail(
                f"{current.name} waits at {what!r}, and no thread can go on: {self._state()}"
            )
        able = current if current in runnable else None
        self._go_on(current, self._strategy.next(able, runnable))
        current.may_run = None

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        if len(self.trace) < TRACE_MAX:
            self.trace.append(line)

    def _begin_point(self, what: str) -> Task:
        if self._abandoned:
            raise AbandonedError
        current = self._current
        assert current is not None
        self.points += 1
        if self.keeps_trace:
            self.note(f"{current.name}: {what}")
        if self.points > POINTS_MAX:
            self._fail(f"more than {POINTS_MAX} points: {self._state()}")
        self._on_point(self.points)
        return current

    def _runnable(self) -> list[Task]:
        return [t for t in self._tasks if not t.done and (t.may_run is None or t.may_run())]

    def _go_on(self, current: Task, chosen: Task) -> None:
        if chosen is not current:
            self._current = chosen
            chosen.worker.gate.release()
            current.worker.gate.acquire()
            if self._abandoned:
                raise AbandonedError

    def _new_task(self, name: str, work: Callable[[], Any]) -> Task:
        worker = next((worker for worker in self._workers if worker.is_free), None)
        if worker is None:
            worker = _Worker(self)
            self._workers.append(worker)
        task = Task(name, work, worker)
        worker.is_free, worker.task = False, task
        self._tasks.append(task)
        return task

    def begin_task(self, task: Task) -> Callable[..., Any] | None:
        """Return the trace function for a task that begins; see `run`."""
        if self._abandoned:
            task.error = AbandonedError()
            task.done = True
        return self._traced

    def end_task(self, task: Task) -> None:
        """Let another thread run after one has ended; called by its worker."""
        with self._ending:
            task.done = True
            if not self._abandoned:
                task.worker.is_free = True
            if all(each.done for each in self._tasks):
                self._over.release()
                return
            if self._abandoned:
                return
            first = self._tasks[0]
            runnable = self._runnable()
            if (first is task and task.error is not None) or not runnable:
                if task.error is None:
                    self._deadlock = DeadlockError(f"no thread can go on: {self._state()}")
                self._abandon(task)
                return
        chosen = self._strategy.next(None, runnable)
        self._current = chosen
        chosen.worker.gate.release()

    def _fail(self, message: str) -> None:
        self._deadlock = DeadlockError(message)
        current = self._current
        assert current is not None
        self._abandon(current)
        raise AbandonedError

    def _abandon(self, current: Task) -> None:
        """Wake all threads; each ends at its next point."""
        self._abandoned = True
        for task in self._tasks:
            if not task.done and task is not current:
                task.worker.gate.release()

    def _state(self) -> str:
        return "; ".join(
            f"{task.name} {'waits' if task.may_run else 'runs'}"
            for task in self._tasks
            if not task.done
        )


class ScheduledLock:
    """A `threading.Lock` whose holder and whose waiting threads the scheduler knows."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait until the lock is free, and take it."""
        assert blocking
        if self._scheduler.schedules_this_thread:
            self._scheduler.point("acquire a lock")
            if self._is_held:
                self._scheduler.block(lambda: not self._is_held, "wait for a lock")
        assert not self._is_held
        self._is_held = True
        return True

    def release(self) -> None:
        """Release the lock."""
        self._is_held = False
        if self._scheduler.schedules_this_thread:
            self._scheduler.point("release a lock")

    def locked(self) -> bool:
        """Return whether a thread holds the lock."""
        return self._is_held

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class _Worker:
    """A thread that runs one task after another."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.is_free = True
        self.task: Task | None = None
        self._scheduler = scheduler
        thread = threading.Thread(target=self._run, name="scheduled", daemon=True)
        thread.start()
        self.ident = thread.ident

    def _run(self) -> None:
        while True:
            self.gate.acquire()
            task = self.task
            assert task is not None
            traced = self._scheduler.begin_task(task)
            if not task.done:
                if traced is not None:
                    sys.settrace(traced)
                with contextlib.suppress(AbandonedError):
                    task.run()
                sys.settrace(None)
            self._scheduler.end_task(task)
