"""An event loop of asyncio in simulated time, on which a member's broker runs.

Its callbacks are events of the run. A function that the program gives to a thread runs as one event
some time later. Everything ends with the life of the member.
"""

import asyncio
import contextlib
import contextvars
import inspect
import weakref
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Protocol, TypeVar

from dledger_sim.broker.wires import Wires

T = TypeVar("T")
TURN_US: Final = 5
"""Time until the next turn of a loop that has work."""
IMMEDIATELY_US: Final = 1


class LoopWorld(Protocol):
    """The services of the group that a loop needs."""

    now_us: int
    event_count: int

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event."""

    def when_awake(self, member_id: str, life: int, action: Callable[[], None]) -> None:
        """Act now, or after the pause of the member, unless its life is over."""

    def thread_us(self, member_id: str) -> int:
        """Draw the time after which a function in a thread has run."""


class MemberLoop(asyncio.AbstractEventLoop):
    """The loop of one life of a member. A second of its time is shorter than one of the run's."""

    def __init__(
        self, member_id: str, life: int, world: LoopWorld, wires: Wires, seconds_per_s: int
    ) -> None:
        self.failure: BaseException | None = None
        """An error that no part of the program has handled."""
        self._member_id = member_id
        self._life = life
        self._world = world
        self._wires = wires
        self._us_per_s = 1e6 / seconds_per_s
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_is_due = self._is_closed = False
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop until the block ends."""
        before = _get_running_loop()
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(before)

    @property
    def is_over(self) -> bool:
        """Whether the life of the member is over."""
        return self._is_closed

    def close(self) -> None:
        """Stop running callbacks."""
        self._is_closed = True
        for task in self._tasks:
            _drop_unbegun(task)
        # The ready callbacks may hold the only references to tasks that have not begun.
        self._ready.clear()

    # -- asyncio -----------------------------------------------------------------------------------

    def time(self) -> float:
        """See `asyncio`."""
        return self._world.now_us / self._us_per_s

    def is_running(self) -> bool:
        """See `asyncio`."""
        return not self._is_closed

    def is_closed(self) -> bool:
        """See `asyncio`."""
        return False  # calls by a dead member's program have no effect, but are no errors

    def get_debug(self) -> bool:
        """See `asyncio`."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error: it breaks a rule."""
        if not self._is_closed:
            self.failure = context.get("exception") or AssertionError(context.get("message"))

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See `asyncio`."""
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        delay_us = int((when - self.time()) * self._us_per_s) + IMMEDIATELY_US
        self._world.after(max(IMMEDIATELY_US, delay_us), self._due, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled handle does not run."""

    def create_future(self) -> "asyncio.Future[Any]":
        """See `asyncio`."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> "asyncio.Task[T]":
        """See `asyncio`."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        if self._is_closed:
            _drop_unbegun(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run a function as a later event, as a thread would."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon(_fail, future, error)
            else:
                self.call_soon(_finish, future, result)

        self._world.after(
            self._world.thread_us(self._member_id), self._world.when_awake, self._member_id,
            self._life, run,
        )  # fmt: skip
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Return the address: names are addresses here."""
        return [(None, None, None, None, (host, port))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> Any:
        """Connect to a listener of another member. Raises OSError."""
        connected: asyncio.Future[Any] = self.create_future()
        self._wires.dial(self, self._member_id, (host, port), protocol_factory, connected)
        return await connected

    async def accept_at(
        self, accept: Callable[[], Any], _host: str | None, port: int, *, is_shared: bool
    ) -> list[Any]:
        """Accept the connections of clients (`listening_sockets.accept_at`)."""
        assert not is_shared
        return [self._wires.listen(self, self._member_id, port, accept)]

    # -- turns -------------------------------------------------------------------------------------

    def _due(self, timer: asyncio.TimerHandle) -> None:
        if not (self._is_closed or timer.cancelled()):
            self._ready.append(timer)
            self._world.event_count -= 1  # a tick of the clock is not an event
            self._world.when_awake(self._member_id, self._life, self._turn)

    def _put(self, handle: asyncio.Handle) -> None:
        if self._is_closed:
            return
        self._ready.append(handle)
        if not self._turn_is_due:
            self._turn_is_due = True
            self._world.after(
                TURN_US, self._world.when_awake, self._member_id, self._life, self._turn
            )

    def _turn(self) -> None:
        """Run the ready callbacks, and those that they schedule, in one event."""
        self._turn_is_due = True
        while self._ready:  # empty once the member has died
            handle = self._ready.popleft()
            if not handle.cancelled():
                with self.running():
                    handle._run()
            self.raise_failure()
        self._turn_is_due = False

    def raise_failure(self) -> None:
        """Raise the unhandled error, if any."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def _finish(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _drop_unbegun(task: "asyncio.Task[Any]") -> None:
    """Close the coroutine of a task that never began: Python warns if none awaits it."""
    coroutine = task.get_coro()
    assert inspect.iscoroutine(coroutine)
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
