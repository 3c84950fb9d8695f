"""The requests that were sent to the leader and have no answer yet. No IO."""

from dledger_broker.door.passing_on.waiting import DOUBT_S, WaitingRequest


class OnTheWay:
    """Requests by the numbers that they were sent under; registrations share these numbers."""

    def __init__(self) -> None:
        self._sent: dict[int, WaitingRequest] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._sent)

    def next_number(self) -> int:
        """Return the number of what is sent next."""
        self._last_number += 1
        return self._last_number

    def sent(self, waiting: WaitingRequest, now_s: float) -> int:
        """Record a request that is sent now; return its number."""
        waiting.sent_s = now_s
        number = self.next_number()
        self._sent[number] = waiting
        return number

    def take(self, number: int) -> WaitingRequest | None:
        """Remove and return the request with this number; None if there is none."""
        return self._sent.pop(number, None)

    def take_all(self) -> list[WaitingRequest]:
        """Remove and return all requests."""
        every, self._sent = list(self._sent.values()), {}
        return every

    def take_unanswered(self, now_s: float) -> list[WaitingRequest]:
        """Remove and return the requests whose answers are late."""
        oldest_s = now_s - DOUBT_S
        late = [each for each in self._sent.items() if each[1].call.arrived_s <= oldest_s]
        for number, _ in late:
            del self._sent[number]
        return [waiting for _, waiting in late]

    def has_late(self, now_s: float) -> bool:
        """Return whether the time of any of them is up."""
        return any(waiting.is_late(now_s) for waiting in self._sent.values())
