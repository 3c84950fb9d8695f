"""Requests that end without the leader, some of them in each turn of the event loop.

Thousands may end at once when there is no leader for two seconds, or when a leader does not answer.
Each answer takes 10 µs, and the members elect a leader just then.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from dledger_broker.door.between_members import refusals
from dledger_broker.door.calls.call import Channel
from dledger_broker.door.passing_on.waiting import WaitingRequest
from dledger_broker.messages.send_checks import RefusedError
from dledger_node.slices import PER_TURN, CallSoon, Slices


class Endings:
    """Requests whose end is decided. They count as waiting until their slice comes."""

    def __init__(
        self, leave: Callable[[WaitingRequest], None], call_soon: CallSoon | None = None
    ) -> None:
        """`leave` stops counting a request; `call_soon` is that of `Slices`."""
        self._leave = leave
        self._left: deque[tuple[RefusedError, deque[WaitingRequest]]] = deque()
        self._slices = Slices(self._end, call_soon)
        self._leaderless: dict[Channel, None] = {}
        """Connections with a request that no leader took in time, since they were last taken."""

    def take_leaderless(self) -> list[Channel]:
        """Return the connections with a request that no leader took in time, each once."""
        channels, self._leaderless = list(self._leaderless), {}
        return channels

    def end(self, every: Iterable[WaitingRequest], refused: RefusedError) -> None:
        """Answer requests: some now, the others in the next turns."""
        waiting = deque(every)
        if waiting:
            self._left.append((refused, waiting))
            self._slices.begin()

    def end_all_now(self) -> None:
        """Answer all that are left: this member closes."""
        while self._end(PER_TURN):
            pass

    def _end(self, count: int) -> bool:
        """Answer the next requests, with one write for each connection."""
        written: dict[Channel, list[bytes]] = {}
        for waiting, refused in itertools.islice(self._taken_off(), count):
            self._leave(waiting)
            frame = waiting.end(refused)
            if refused is refusals.LATE:
                self._leaderless[waiting.call.channel] = None
            if frame:
                written.setdefault(waiting.call.channel, []).append(frame)
        for channel, frames in written.items():
            channel.send(b"".join(frames))
        return bool(self._left)

    def _taken_off(self) -> Iterator[tuple[WaitingRequest, RefusedError]]:
        """Remove and yield the requests, one after the other."""
        while self._left:
            refused, every = self._left[0]
            waiting = every.popleft()
            if not every:
                self._left.popleft()
            yield waiting, refused
