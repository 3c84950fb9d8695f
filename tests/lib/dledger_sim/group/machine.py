"""One member's process around its core: an event loop, a clock and the turns of clients.

The clock and the turns are the node's own.
"""

from collections.abc import Callable
from typing import Final

from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.input_turns import InputTurns
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.shell.clock import TickClock
from dledger_sim.group.event_loop import EventLoop
from dledger_sim.group.events import Events
from dledger_sim.judges.load_rules import LoadRules

TICK_US: Final = 20.0
MESSAGE_US: Final = 40.0
ENTRY_US: Final = 3.0
"""Work for an entry that is written: of a proposal, or of a push, which is checked before."""
HARD_STATE_US: Final = 200.0
"""A save of term and vote, which the loop waits for."""
TAIL_US: Final = 25.0
"""The answer of one new entry to a tailing reader."""


class Machine:
    """The process of one member."""

    def __init__(self, events: Events, slowness: int, rules: LoadRules) -> None:
        """`slowness` is the factor by which all work takes longer than on a fast machine."""
        self.events = events
        self.rules = rules
        self.loop = EventLoop(events, slowness)
        self.slowness = slowness
        self.connection_count = 0
        """Connections of crowds."""
        self.is_calm = False
        """Whether all crowds have left."""
        self.read_turns = ReadTurns(self._turn_of_clients, self.loop.now_s)
        self.input_turns = InputTurns(self._turn_of_clients, self.loop.now_s)
        self.tails: list[Reader] = []
        self._before_us = 0.0
        self._clock: TickClock | None = None

    def ticks(self) -> tuple[int, int]:
        """Return the time until the next tick in µs, and the ticks of time since the last one."""
        now_s = self.loop.now_s()
        if self._clock is None:
            self._clock = TickClock(now_s)
            return int((self._clock.due_s - now_s) * 1e6), 1
        elapsed_ticks = self._clock.tick(now_s)
        return max(0, int((self._clock.due_s - self.events.now_us / 1e6) * 1e6)), elapsed_ticks

    def of_clients(self, work: Callable[[], None]) -> None:
        """Do work in the loop now that clients cause."""
        self._before_us = self.loop.worked_us
        work()
        self.judge()

    def judge(self) -> None:
        """Check the work that clients have caused in this turn so far."""
        self.rules.worked_for_clients(self.loop.worked_us - self._before_us)

    def committed(self) -> None:
        """Serve the tails, which wait for the next committed entry."""
        self.of_clients(self._serve_tails)

    def _serve_tails(self) -> None:
        for tail in self.tails:
            self.read_turns.submit(tail, lambda: self.loop.work(TAIL_US))

    def _turn_of_clients(self, turn: Callable[[], None]) -> None:
        self.loop.call_soon(lambda: self.of_clients(turn))
