"""The requests that wait for the leader: their order, how long, and how many. No IO.

The room also counts the requests that are on their way to the leader, since they need memory, too.
"""

from collections import deque
from typing import Final

from dledger_broker.door.turns import Turns
from dledger_broker.door.waiting import Waiting

WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20
CLIENT_MAX: Final = WAITING_MAX // 2
CLIENT_BYTES_MAX: Final = WAITING_BYTES_MAX // 2
"""The share of one client, so that a busy one leaves room for the others."""


class WaitingRoom:
    """Keeps and counts the requests that wait."""

    def __init__(self) -> None:
        self.queue: deque[Waiting] = deque()
        """Those to be sent or served next, in the order in which they came."""
        self.unnumbered: deque[Waiting] = deque()
        """Those that wait for numbers, all of which came before the ones in the queue that do."""
        self.later: list[Waiting] = []
        """Those that the leader could not take just now."""
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
        if self.later or self.unnumbered:
            every = (*self.unnumbered, *self.queue, *self.later)
            self.turns.put_back(self.later)
            self.queue = deque(sorted(every, key=lambda each: each.place))
            self.unnumbered.clear()
            self.later.clear()

    def put_off(self, waiting: Waiting) -> None:
        """Keep a request that could not be taken just now, or that must follow another one."""
        self.later.append(waiting)
        self.turns.put_off(waiting)

    def take_all(self) -> list[Waiting]:
        """Return all that waits, and keep it no longer."""
        self.put_back()
        every = list(self.queue)
        self.queue.clear()
        return every

    def take_late(self, now_s: float) -> list[Waiting]:
        """Return those whose time is up, and keep them no longer."""
        late = [each for each in (*self.unnumbered, *self.queue) if each.is_late(now_s)]
        if late:
            gone = set(late)
            self.queue = deque(each for each in self.queue if each not in gone)
            self.unnumbered = deque(each for each in self.unnumbered if each not in gone)
        return late

    def refusal(self, waiting: Waiting) -> str | None:
        """Return why another request may not wait; None if it may."""
        size = waiting.size
        if self.count >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            return "too many requests wait for the leader"
        count, own_bytes = self._clients.get(waiting.client, (0, 0))
        if count >= CLIENT_MAX or own_bytes + size > CLIENT_BYTES_MAX:
            return "too many requests of this client wait for the leader"
        return None

    def enter(self, waiting: Waiting) -> None:
        """Count a request that waits."""
        self._add(waiting, 1, waiting.size)
        self.turns.enter(waiting)

    def leave(self, waiting: Waiting) -> None:
        """Count a request no longer."""
        self._add(waiting, -1, -waiting.size)
        self.turns.leave(waiting)

    def _add(self, waiting: Waiting, count: int, size: int) -> None:
        self.count += count
        self._bytes += size
        own_count, own_bytes = self._clients.get(waiting.client, (0, 0))
        if own_count + count:
            self._clients[waiting.client] = own_count + count, own_bytes + size
        else:
            del self._clients[waiting.client]
