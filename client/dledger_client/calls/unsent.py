"""The calls that are on no connection: those that wait for a leader, and those that are delayed."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from dledger_client.calls.call import Call


class UnsentCalls:
    """Keeps each call in one of two places, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[Call] = deque()
        self._delayed: dict[Call, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def first(self) -> Call | None:
        """A call that waits for a leader, or else one that is delayed; None if there is none."""
        return self._waiting[0] if self._waiting else next(iter(self._delayed), None)

    @property
    def any_waits(self) -> bool:
        """Whether a call waits for a leader."""
        return bool(self._waiting)

    def wait(self, call: Call) -> None:
        """Keep a call until `take_waiting`."""
        self._waiting.append(call)

    def delay(self, call: Call, pause_s: float, forward: Callable[[Call], None]) -> None:
        """Keep a call for `pause_s`, and then forward it."""
        self._delayed[call] = self._loop.call_later(pause_s, self._end_delay, call, forward)

    def drop_delayed(self, call: Call) -> bool:
        """Drop a call if it is delayed, and return whether it was."""
        timer = self._delayed.pop(call, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def take_waiting(self) -> Iterator[Call]:
        """Take out the calls that wait for a leader now; each may be kept again."""
        waiting, self._waiting = self._waiting, deque()
        return iter(waiting)

    def take_all(self) -> Iterator[Call]:
        """Take out every call."""
        delayed, self._delayed = self._delayed, {}
        for timer in delayed.values():
            timer.cancel()
        yield from (*delayed, *self.take_waiting())

    def _end_delay(self, call: Call, forward: Callable[[Call], None]) -> None:
        del self._delayed[call]
        forward(call)
