"""The pulls that wait for messages, by their queue and by their connection."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from dledger_broker.door.reading.pull_requests import Pull
from dledger_broker.queues.builder import QueueId

HELD_MAX: Final = 20_000
HELD_OF_CLIENT_MAX: Final = 4096
_TOGETHER_S: Final = 0.25
"""Pulls whose time ends in the same quarter of a second are looked at together."""


class HeldPulls:
    """The pulls that wait for messages, by queue and by connection."""

    def __init__(self) -> None:
        self.count = 0
        self.woken: dict[Pull, None] = {}
        """The pulls that are to be served."""
        self._leaderless: dict[Pull, None] = {}
        """The pulls that wait for a leader."""
        self._by_queue: dict[QueueId, dict[Pull, None]] = {}
        self._by_channel: dict[object, dict[Pull, None]] = {}
        self._by_end: dict[int, dict[Pull, None]] = {}
        """By when their time ends, in quarters of a second."""
        self._being_read: dict[QueueId, dict[Pull, None]] = {}
        """The pulls for which a thread reads."""

    def __contains__(self, pull: Pull) -> bool:
        return pull in self._by_queue.get(pull.queue, ())

    def __iter__(self) -> Iterator[Pull]:
        return chain.from_iterable(self._by_queue.values())

    @property
    def queues(self) -> list[QueueId]:
        """The queues for whose messages pulls wait."""
        return list(self._by_queue)

    def add(self, pull: Pull, *, needs_leader: bool = False) -> bool:
        """Hold a pull; return False if too many are held.

        A pull that `needs_leader` waits for a leader, too.
        """
        of_channel = self._by_channel.get(pull.call.channel, {})
        if self.count >= HELD_MAX or len(of_channel) >= HELD_OF_CLIENT_MAX:
            return False
        self.count += 1
        of_channel[pull] = None
        self._by_channel[pull.call.channel] = of_channel
        self._by_queue.setdefault(pull.queue, {})[pull] = None
        self._by_end.setdefault(_end_of(pull.deadline_s), {})[pull] = None
        if needs_leader:
            self._leaderless[pull] = None
        return True

    def release(self, pull: Pull) -> None:
        """Stop holding a pull."""
        self.count -= 1
        self.woken.pop(pull, None)
        self._leaderless.pop(pull, None)
        table: dict[object, dict[Pull, None]]
        for table, key in (  # type: ignore[assignment]
            (self._by_queue, pull.queue),
            (self._by_channel, pull.call.channel),
            (self._by_end, _end_of(pull.deadline_s)),
        ):
            del table[key][pull]
            if not table[key]:
                del table[key]

    @contextmanager
    def being_read(self, pull: Pull) -> Iterator[None]:
        """Return the context in which a thread reads for a pull, which is not held meanwhile."""
        pull.is_woken = False
        pulls = self._being_read.setdefault(pull.queue, {})
        pulls[pull] = None
        try:
            yield
        finally:
            del pulls[pull]
            if not pulls:
                del self._being_read[pull.queue]

    def wake(self, queues: Iterable[QueueId]) -> None:
        """Mark the pulls of these queues to be served."""
        for queue in queues:
            self.woken.update(self._by_queue.get(queue, {}))
            for pull in self._being_read.get(queue, ()):
                pull.is_woken = True

    def wake_leaderless(self) -> None:
        """Mark the pulls that need a leader to be served."""
        self.woken.update(self._leaderless)

    def expired(self, now_s: float) -> Iterator[Pull]:
        """Return the pulls that were held long enough."""
        now = _end_of(now_s)
        for end, pulls in self._by_end.items():
            if end < now:
                yield from pulls
            elif end == now:
                yield from (pull for pull in pulls if pull.deadline_s <= now_s)

    def of_channel(self, channel: object) -> list[Pull]:
        """Return the pulls of a connection."""
        return list(self._by_channel.get(channel, ()))

    def channels_of_late(self, until_s: float) -> Iterator[object]:
        """Return the connections with a pull that came no later than `until_s`."""
        for channel, pulls in self._by_channel.items():
            if any(pull.call.arrived_s <= until_s for pull in pulls):
                yield channel


def _end_of(deadline_s: float) -> int:
    return int(deadline_s / _TOGETHER_S)
