"""The order of requests that have no numbers: a repeated one must not undo a later one. No IO.

An offset that is committed again after a newer one would set a group back, and a queue that is
locked again after it was unlocked would stay locked. So requests about one thing take turns: the
offset of a queue in a group, or what one client holds. None is sent before an older one that must
be sent again, and none is sent again after a newer one.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dledger_broker.door.passing_on.waiting import WaitingRequest
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
_HEARTBEAT: Final = int(RequestCode.HEART_BEAT)
_LOCKS: Final = frozenset((int(RequestCode.LOCK_BATCH_MQ), int(RequestCode.UNLOCK_BATCH_MQ)))
_Place: TypeAlias = tuple[float, int]
_NONE: Final = (-1.0, -1)


@dataclass(slots=True)
class _Thing:
    """One subject of requests whose order matters, such as a group's offset in one queue."""

    count: int = 0
    later: int = 0
    """How many of them were put off, and are not back in the queue."""
    on_way: set[int] = field(default_factory=set)
    """The orders of those that were sent, and have not come back."""
    newest_sent: dict[int, _Place] = field(default_factory=dict)
    """The places of the newest ones of each code that were sent and have not come back."""
    newest_ended: dict[int, _Place] = field(default_factory=dict)

    def is_behind(self, waiting: WaitingRequest) -> bool:
        """Return whether a newer request was sent that this one would undo."""
        code, place = waiting.call.command.code, waiting.place
        return any(
            place < newest and not _is_harmless(code, other)
            for other, newest in self.newest_sent.items()
        )

    def came_back(self, waiting: WaitingRequest) -> None:
        """Let older ones be sent again, once nothing is on its way."""
        self.on_way.discard(waiting.order)
        if not self.on_way:
            self.newest_sent = self.newest_ended.copy()


class Turns:
    """The subjects of all requests that wait, or are on their way."""

    def __init__(self) -> None:
        self._things: dict[Hashable, _Thing] = {}

    def enter(self, waiting: WaitingRequest) -> None:
        """Record a request."""
        key = thing_of(waiting.call.command, waiting.client)
        waiting.thing = key
        if key is not None:
            self._things.setdefault(key, _Thing()).count += 1

    def leave(self, waiting: WaitingRequest) -> None:
        """Record that a request has ended, or is served here."""
        thing = self._things.get(waiting.thing)
        if thing is not None:
            thing.count -= 1
            _raise(thing.newest_ended, waiting)
            thing.came_back(waiting)
            if not thing.count:
                del self._things[waiting.thing]

    def must_follow(self, command: RemotingCommand, client: bytes) -> bool:
        """Return whether an older request about the same thing was put off."""
        thing = self._things.get(thing_of(command, client))
        return thing is not None and thing.later > 0

    def put_off(self, waiting: WaitingRequest) -> None:
        """Make the requests that came after this one follow it."""
        thing = self._things.get(waiting.thing)
        if thing is not None:
            thing.later += 1
            thing.came_back(waiting)

    def put_back(self, every: Iterable[WaitingRequest]) -> None:
        """Record that these requests are no longer put off."""
        for waiting in every:
            thing = self._things.get(waiting.thing)
            if thing is not None:
                thing.later -= 1

    def is_overtaken(self, waiting: WaitingRequest) -> bool:
        """Return whether a newer request was already sent; if not, count this one as sent."""
        thing = self._things.get(waiting.thing)
        if thing is None:
            return False
        if thing.is_behind(waiting):
            return True
        _raise(thing.newest_sent, waiting)
        thing.on_way.add(waiting.order)
        return False


def _raise(newest: dict[int, _Place], waiting: WaitingRequest) -> None:
    """Record the place of a request, if no newer one of its code is known."""
    code = waiting.call.command.code
    newest[code] = max(newest.get(code, _NONE), waiting.place)


def _is_harmless(code: int, newer: int) -> bool:
    """Return whether a request does not undo a newer one, as with heartbeats and locks."""
    return (code == _HEARTBEAT and newer in _LOCKS) or (code in _LOCKS and newer == _HEARTBEAT)


def thing_of(command: RemotingCommand, client: bytes) -> Hashable:
    """Return what a request is about; None if its order does not matter."""
    if command.code in _OF_CLIENTS:
        return client
    if command.code != _OFFSET:
        return None
    ext = command.ext_fields or {}
    return ext.get("consumerGroup"), ext.get("topic"), ext.get("queueId")
