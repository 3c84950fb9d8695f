"""Work on thousands of things in slices: at most PER_TURN in one turn of the event loop.

Closing, answering or notifying one of many connections takes up to 20 µs. Handling all of them at
once would hold up heartbeats and all other clients.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeAlias, TypeVar

CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
Item = TypeVar("Item")

PER_TURN: Final = 100
"""Things that one turn handles, which takes up to 2 ms."""


class Slices:
    """Work that goes on in the next turns of the loop until nothing is left."""

    def __init__(self, take: Callable[[int], bool], call_soon: CallSoon | None = None) -> None:
        """`take` handles up to the given number of things, and returns whether others may be left.

        It removes each one before it handles it, so an error costs only that one. `call_soon` runs
        a function in the next turn of the loop; the default is that of the loop then running.
        """
        self._take = take
        self._call_soon = call_soon
        self._is_under_way = False

    def begin(self) -> None:
        """Handle the first slice now. If a slice is due already, that one comes first."""
        if not self._is_under_way:
            self._turn()

    def _turn(self) -> None:
        self._is_under_way = True  # what is handled now may call `begin`
        more = True  # after an error, go on with the others
        try:
            more = self._take(PER_TURN)
        finally:
            self._is_under_way = more
            if more:
                (self._call_soon or asyncio.get_running_loop().call_soon)(self._turn)


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield items, at most PER_TURN in each turn of the loop."""
    for number, item in enumerate(items):
        if number and not number % PER_TURN:
            await asyncio.sleep(0)
        yield item
