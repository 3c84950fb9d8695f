"""Share the event loop's time among the input of all clients, and of all peers.

Decoding the bytes of one read of a socket can take several milliseconds, and hundreds of clients
can be ready at once. So the clients' input gets a slice of each turn of the loop. A client whose
input does not fit waits for a later turn and is not read meanwhile; the clients take turns. The
peers' input has its own slice, so that clients never delay it. It is bounded too: uvloop reads a
socket up to 32 times in one turn, and a leader sends megabytes to a member that has fallen behind.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from dledger_node.remoting.turn_time import TurnTime

SLICE_S: Final = 0.002
"""Time for the clients' input in one turn, which begins no further input after it."""
PEERS_SLICE_S: Final = 0.001
"""Time for the peers' input in one turn, which begins no further input after it. A push of 128 KiB
takes about 0.2 ms.
"""


class Sender(Protocol):
    """A connection with input."""

    def take_input(self, until_s: float) -> bool:
        """Handle the next part of what has arrived, and begin no request after `until_s`.

        Returns whether there is more that can be handled now.
        """


class InputTurns:
    """Lets connections handle their input, a bounded time in each turn of the loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        now_s: Callable[[], float] = time.perf_counter,
        *,
        slice_s: float = SLICE_S,
    ) -> None:
        """`call_soon` runs a function in the next turn of the loop."""
        self._time = TurnTime(slice_s)
        self._call_soon = call_soon
        self._now_s = now_s
        self._turn_is_due = self._is_serving = self._is_closed = False
        # Connections with input, in the order of their turns.
        self._waiting: dict[Sender, None] = {}

    def ready(self, sender: Sender) -> None:
        """Let a connection handle its input: now if the turn has time for it, else later."""
        if self._is_closed:
            return
        self._schedule()
        self._waiting[sender] = None
        if len(self._waiting) == 1 and not self._is_serving:
            self._serve()

    def forget(self, sender: Sender) -> None:
        """Stop serving a connection that is closed."""
        self._waiting.pop(sender, None)

    def close(self) -> None:
        """Stop serving all connections: this member ends them."""
        self._is_closed = True
        self._waiting.clear()

    def _schedule(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            if self._call_soon is None:  # kept, because `get_running_loop` makes a system call
                self._call_soon = asyncio.get_running_loop().call_soon
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        self._time.callback_begins()
        if self._waiting:
            self._schedule()
            self._serve()
        self._time.callback_ends()

    def _serve(self) -> None:
        """Serve one connection after another until the turn's time is used up."""
        self._is_serving = True  # what is served now may call `ready`
        try:
            while self._waiting and self._time.left_s > 0:
                self._serve_one(next(iter(self._waiting)))
        finally:
            self._is_serving = False

    def _serve_one(self, sender: Sender) -> None:
        began_s = self._now_s()
        more = False
        try:
            more = sender.take_input(began_s + self._time.left_s)
        finally:
            self._time.spend(self._now_s() - began_s)
            if self._waiting.pop(sender, sender) is None and more:  # else it was closed
                self._waiting[sender] = None
