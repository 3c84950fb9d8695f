"""The calls that are on no connection: those that wait for a leader, and those that are delayed."""

import asyncio
from collections.abc import Callable

from dledger_client.calls.call import Call
from dledger_client.calls.call_queue import CallQueue


class UnsentCalls:
    """Keeps each call in one of two places, in the order in which they came."""

    def __init__(self) -> None:
        self.waiting = CallQueue()
        """The calls that wait for a leader."""
        self._delayed: dict[Call, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def first(self) -> Call | None:
        """A call that waits for a leader, or else one that is delayed; None if there is none."""
        return self.waiting[0] if self.waiting else next(iter(self._delayed), None)

    def delay(self, call: Call, pause_s: float, forward: Callable[[Call], None]) -> None:
        """Keep a call for `pause_s`, and then forward it."""
        self._delayed[call] = self._loop.call_later(pause_s, self._end_delay, call, forward)

    def drop_delayed(self, call: Call) -> bool:
        """Drop a call if it is delayed, and return whether it was."""
        timer = self._delayed.pop(call, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def take_all(self) -> list[Call]:
        """Take out every call."""
        delayed, self._delayed = self._delayed, {}
        for timer in delayed.values():
            timer.cancel()
        return [*delayed, *self.waiting.take_all()]

    def _end_delay(self, call: Call, forward: Callable[[Call], None]) -> None:
        del self._delayed[call]
        forward(call)
