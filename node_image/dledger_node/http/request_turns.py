"""Share the event loop's time among the HTTP requests of all connections.

A page takes up to 1.5 ms of the loop, and hundreds of connections can ask for one at once, or wait
for the same change. So each turn of the loop begins a few of them; the others wait, in the order in
which they came. Half of the places are for probes while any wait: a flood of other requests does
not delay a probe, and a flood of probes does not keep others from being answered.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from aiohttp import web

from dledger_node.slices import CallSoon

PER_TURN: Final = 4
"""Requests that one turn begins, and answers of long polls."""

Work: TypeAlias = Callable[[], None]


class RequestTurns:
    """Begins requests, a bounded number in each turn of the loop."""

    def __init__(self, call_soon: CallSoon | None = None) -> None:
        """`call_soon` runs a function in the next turn; the default is the running loop's."""
        self._call_soon = call_soon
        self._is_due = False
        self._probes: dict[object, Work] = {}
        self._others: dict[object, Work] = {}

    def submit(self, owner: object, work: Work, *, is_probe: bool = False) -> None:
        """Do the work of `owner`, which has no other, in its turn."""
        (self._probes if is_probe else self._others)[owner] = work
        self._schedule()

    def forget(self, owner: object) -> None:
        """Do not do the work of `owner`, if it waits."""
        self._probes.pop(owner, None)
        self._others.pop(owner, None)

    async def turn(self) -> None:
        """Return once the caller may continue."""
        turn = asyncio.get_running_loop().create_future()
        self.submit(turn, lambda: turn.set_result(None))
        try:
            await turn
        finally:
            self.forget(turn)  # the caller may have been cancelled

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            (self._call_soon or asyncio.get_running_loop().call_soon)(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for number in range(PER_TURN):
            first, second = self._probes, self._others
            if number % 2:
                first, second = second, first
            waiting = first or second
            if not waiting:
                return
            work = waiting.pop(next(iter(waiting)))
            if self._probes or self._others:
                self._schedule()  # first: the work may fail
            work()


TURNS: Final[web.AppKey[RequestTurns]] = web.AppKey("turns", RequestTurns)
"""The turns of an application's requests."""
