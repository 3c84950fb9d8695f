"""The requests that wait for the leader: their order, how long, and how many. No IO.

The room also counts the requests that are on their way to the leader, since they need memory, too.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final

from dledger_broker.door.passing_on.turns import Turns
from dledger_broker.door.passing_on.waiting import WaitingRequest

WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20
CLIENT_MAX: Final = WAITING_MAX // 2
CLIENT_BYTES_MAX: Final = WAITING_BYTES_MAX // 2
"""The share of one client, so that a busy one leaves room for the others."""


class WaitingRoom:
    """Keeps and counts the requests that wait. Its queues stay the same objects."""

    def __init__(self) -> None:
        self.queue: deque[WaitingRequest] = deque()
        """Requests to be sent or served next, in the order in which they came."""
        self.unnumbered: deque[WaitingRequest] = deque()
        """Requests that wait for numbers. All came before those in the queue that need some."""
        self.later: list[WaitingRequest] = []
        """Requests that the leader could not take just now."""
        self.turns = Turns()
        self.count = 0
        """How many wait, or are on their way."""
        self._bytes = 0
        self._clients: dict[bytes, tuple[int, int]] = {}
        """The requests and bytes of each client, by its address."""

    @property
    def has_next(self) -> bool:
        """Whether there is a request to be sent or served."""
        return bool(self.queue or self.unnumbered)

    def put_back(self) -> None:
        """Put all that waits into the queue, in the order in which it came."""
        for waiting in self.later:
            waiting.pause_s = 0.0
        if self.later or self.unnumbered:
            self._put_back(self.later, [])

    def put_back_due(self, now_s: float) -> None:
        """Put into the queue what may be sent again now, or is late."""
        due: list[WaitingRequest] = []
        rest: list[WaitingRequest] = []
        held: set[Hashable] = set()
        for waiting in sorted(self.later, key=_place_of):
            can_go = waiting.next_s <= now_s and (
                waiting.thing is None or waiting.thing not in held
            )
            if can_go or waiting.is_late(now_s):
                due.append(waiting)
            else:
                rest.append(waiting)
                held.add(waiting.thing)
        if due:
            self._put_back(due, rest)

    def _put_back(self, back: list[WaitingRequest], rest: list[WaitingRequest]) -> None:
        every = (*self.unnumbered, *self.queue, *back)
        self.turns.put_back(back)
        self.queue.clear()
        self.queue.extend(sorted(every, key=_place_of))
        self.unnumbered.clear()
        self.later = rest

    def put_off(self, waiting: WaitingRequest) -> None:
        """Keep a request that could not be taken just now, or that must follow another one."""
        self.later.append(waiting)
        self.turns.put_off(waiting)

    def take_all(self) -> list[WaitingRequest]:
        """Remove and return all waiting requests."""
        self.put_back()
        every = list(self.queue)
        self.queue.clear()
        return every

    def take_late(self, now_s: float) -> list[WaitingRequest]:
        """Remove and return the requests whose time is up."""
        late = [each for each in (*self.unnumbered, *self.queue) if each.is_late(now_s)]
        if late:
            gone = set(late)
            for waiting in (self.queue, self.unnumbered):
                kept = [each for each in waiting if each not in gone]
                waiting.clear()
                waiting.extend(kept)
        return late

    def refusal(self, waiting: WaitingRequest) -> str | None:
        """Return why another request may not wait; None if it may."""
        size = waiting.size
        if self.count >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            return "too many requests wait for the leader"
        count, own_bytes = self._clients.get(waiting.client, (0, 0))
        if count >= CLIENT_MAX or own_bytes + size > CLIENT_BYTES_MAX:
            return "too many requests of this client wait for the leader"
        return None

    def enter(self, waiting: WaitingRequest) -> None:
        """Count a request that waits."""
        self._add(waiting, 1, waiting.size)
        self.turns.enter(waiting)

    def leave(self, waiting: WaitingRequest) -> None:
        """Stop counting a request."""
        self._add(waiting, -1, -waiting.size)
        self.turns.leave(waiting)

    def _add(self, waiting: WaitingRequest, count: int, size: int) -> None:
        self.count += count
        self._bytes += size
        own_count, own_bytes = self._clients.get(waiting.client, (0, 0))
        if own_count + count:
            self._clients[waiting.client] = own_count + count, own_bytes + size
        else:
            del self._clients[waiting.client]


def _place_of(waiting: WaitingRequest) -> tuple[float, int]:
    return waiting.place
