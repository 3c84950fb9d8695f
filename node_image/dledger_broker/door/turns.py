"""The order of requests that have no numbers: one that is repeated must undo no later one. No IO.

An offset that is committed again after a newer one would set a group back, and a queue that is
locked again after it was freed would stay locked. So requests about one thing take turns: the
offset of a queue in a group, or what one client holds. None is sent before an older one that must
be sent again, and none is sent again after a newer one.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from dledger_broker.door.waiting import Waiting
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode

_OFFSET: Final = int(RequestCode.UPDATE_CONSUMER_OFFSET)
_OF_CLIENTS: Final = frozenset(
    map(
        int,
        (
            RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
            RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
        ),
    )
)  # fmt: skip
_NONE: Final = (-1.0, -1)


@dataclass(slots=True)
class _Thing:
    """What some requests that wait, or are on their way, are about."""

    count: int = 0
    later: int = 0
    """How many of them were put off, and are not in the queue again."""
    on_way: set[int] = field(default_factory=set)
    """The orders of those that were sent, and have not come back."""
    newest_sent: tuple[float, int] = _NONE
    """The place of the newest one that was sent and has not come back."""
    newest_ended: tuple[float, int] = _NONE

    def came_back(self, waiting: Waiting) -> None:
        """Let older ones be sent again, once nothing is on its way any longer."""
        self.on_way.discard(waiting.order)
        if not self.on_way:
            self.newest_sent = self.newest_ended


class Turns:
    """The things of all requests that wait, or are on their way."""

    def __init__(self) -> None:
        self._things: dict[Hashable, _Thing] = {}

    def enter(self, waiting: Waiting) -> None:
        """Take note of a request."""
        key = thing_of(waiting.call.command, waiting.client)
        waiting.thing = key
        if key is not None:
            self._things.setdefault(key, _Thing()).count += 1

    def leave(self, waiting: Waiting) -> None:
        """Take note that a request has ended, or is served here."""
        thing = self._things.get(waiting.thing)
        if thing is not None:
            thing.count -= 1
            thing.newest_ended = max(thing.newest_ended, waiting.place)
            thing.came_back(waiting)
            if not thing.count:
                del self._things[waiting.thing]

    def must_follow(self, command: RemotingCommand, client: bytes) -> bool:
        """Tell whether an older request about the same thing was put off."""
        thing = self._things.get(thing_of(command, client))
        return thing is not None and thing.later > 0

    def put_off(self, waiting: Waiting) -> None:
        """Let those that came after a request follow it."""
        thing = self._things.get(waiting.thing)
        if thing is not None:
            thing.later += 1
            thing.came_back(waiting)

    def put_back(self, every: Iterable[Waiting]) -> None:
        """Take note that these requests are put off no longer."""
        for waiting in every:
            thing = self._things.get(waiting.thing)
            if thing is not None:
                thing.later -= 1

    def is_overtaken(self, waiting: Waiting) -> bool:
        """Tell whether a newer request was sent before this one; if not, this one is now sent."""
        thing = self._things.get(waiting.thing)
        if thing is None:
            return False
        if waiting.place < thing.newest_sent:
            return True
        thing.newest_sent = waiting.place
        thing.on_way.add(waiting.order)
        return False


def thing_of(command: RemotingCommand, client: bytes) -> Hashable:
    """Return what a request is about; None if its order does not matter."""
    if command.code in _OF_CLIENTS:
        return client
    if command.code != _OFFSET:
        return None
    ext = command.ext_fields or {}
    return ext.get("consumerGroup"), ext.get("topic"), ext.get("queueId")
