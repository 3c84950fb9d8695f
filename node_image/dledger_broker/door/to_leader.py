"""Requests that only the leader can serve: served here if this member leads, and passed on if not.

While no leader is known, or a new one is not ready, requests wait here. When the leader goes, those
without an answer are sent to the next one. A message keeps the number that it was sent under
(`door_numbers`), so that it is in the log once; every other request may be repeated.

A request that was never passed on, or surely had no effect, ends with code 14 after 2 s; producers
then try again. One that may have had its effect ends with code 1 after 2.5 s.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dledger_broker.door.call import Call, Line
from dledger_broker.door.door_frames import REGISTER, DoorAnswer, DoorRequest, Way, decode_identity
from dledger_broker.door.door_link import DoorLink, OpenLink
from dledger_broker.door.door_numbers import COUNT_MAX, DoorNumbers
from dledger_broker.door.waiting import (
    DOUBT_S,
    REQUEST_BYTES,
    STORING,
    Waiting,
    in_doubt,
    refuse,
)
from dledger_broker.metrics import BrokerCounters
from dledger_formats.json_objects import FormatError

WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20


class Leadership(Protocol):
    """What this member knows of the leader."""

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before it did."""

    @property
    def leads(self) -> bool:
        """Whether this member leads; it need not be ready."""

    @property
    def leader(self) -> tuple[str, int] | None:
        """The leader and its term; None if this member knows none."""


class ToLeader:
    """The way of all requests to the leader."""

    def __init__(
        self,
        leadership: Leadership,
        open_link: OpenLink,
        serve: Callable[[Call], None],
        counters: BrokerCounters,
        now_s: Callable[[], float],
    ) -> None:
        """`serve` answers a request if this member leads and is ready."""
        self.counters = counters
        self._leadership = leadership
        self._open_link = open_link
        self._serve = serve
        self._now_s = now_s
        self._numbers = DoorNumbers()
        self._queue: deque[Waiting] = deque()
        """Those to be sent or served next, in the order in which they came."""
        self._later: list[Waiting] = []
        """Those that the leader could not take just now."""
        self._sent: dict[int, Waiting] = {}
        """Those that are on their way, by number of the request."""
        self._link: DoorLink | None = None
        self._registering: int | None = None
        """The number of the request for a registration that is on its way."""
        self._count = self._bytes = 0
        self._next_order = self._next_request = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many requests wait for the leader, or for its answer."""
        return self._count

    def take(self, call: Call) -> None:
        """Serve a request, pass it on, or let it wait."""
        if not self._queue and self._leadership.is_proven:
            self._serve(call)
            return
        waiting = self._enter(call)
        if waiting is not None:
            self._queue.append(waiting)
            self.go_on()

    def turned(self, call: Call, way: Way) -> None:
        """Take back a request that this member could not serve as the leader."""
        waiting = call.waiting
        if waiting is None:
            if way is Way.IN_DOUBT and call.command.code in STORING:
                in_doubt(call)
                return
            waiting = self._enter(call)
            if waiting is None:
                return
        else:
            self._count += 1
            self._bytes += waiting.size
        self._take_back(waiting, way)

    def go_on(self) -> None:
        """Serve or send what waits, as far as that is possible now."""
        leadership = self._leadership
        if leadership.is_proven:
            self._leave_link()
            while self._queue and leadership.is_proven:
                waiting = self._queue.popleft()
                self._release(waiting)
                waiting.call.waiting = waiting
                self._serve(waiting.call)
            return
        if leadership.leads or (leader := leadership.leader) is None:
            return
        link = self._link
        if link is None or (link.leader_id, link.term) != leader:
            self._leave_link()
            if not self._queue:
                return
            link = self._link = self._open_link(self, *leader)
            if link is None:
                return
        while self._queue and self._send(link, self._queue[0]):
            self._queue.popleft()

    def tick(self) -> None:
        """Try again what could not be taken, and end what has waited for too long."""
        later, self._later = self._later, []
        self._put_back(later)
        now_s = self._now_s()
        while self._queue and self._queue[0].is_late(now_s):
            self._end_late(self._queue.popleft())
        if self._waits_for_link_too_long(now_s):
            self._leave_link()  # so that none of its requests can reach the leader later
        oldest_s = now_s - DOUBT_S
        late = [each for each in self._sent.items() if each[1].call.arrived_s <= oldest_s]
        for number, waiting in late:
            del self._sent[number]
            waiting.may_be_stored = True
            self._end_late(waiting)
        self.go_on()

    def _waits_for_link_too_long(self, now_s: float) -> bool:
        """Tell whether a request is late, and the link that it waits for was never made."""
        if self._link is None or self._link.was_made:
            return False
        return any(waiting.is_late(now_s) for waiting in self._sent.values())

    def leader_changed(self) -> None:
        """Go on with another leader, or none, or the same one that is now ready."""
        later, self._later = self._later, []
        self._put_back(later)
        self.go_on()

    def ended(self, call: Call) -> None:
        """Take note that this member has answered a request as the leader, after it waited."""
        waiting, call.waiting = call.waiting, None
        if waiting is not None and waiting.number is not None:
            self._numbers.resolve(waiting.number, stored=waiting.is_stored)

    def close(self) -> None:
        """Refuse all that waits."""
        self._is_closed = True
        self._leave_link()
        later, self._later = self._later, []
        for waiting in [*self._queue, *later]:
            self._end_late(waiting)
        self._queue.clear()

    # -- waiting -----------------------------------------------------------------------------------

    def _enter(self, call: Call) -> Waiting | None:
        """Count a request that waits; None if it is refused."""
        size = len(call.command.body) + REQUEST_BYTES
        if self._is_closed:
            refuse(call, "this member stops")
            return None
        if self._count >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            refuse(call, "too many requests wait for the leader")
            return None
        self._next_order += 1
        waiting = Waiting(call, self._next_order)
        self._count += 1
        self._bytes += waiting.size
        return waiting

    def _release(self, waiting: Waiting) -> None:
        self._count -= 1
        self._bytes -= waiting.size

    def _put_back(self, others: Sequence[Waiting]) -> None:
        """Put requests back into the queue, in the order in which they came."""
        if others:
            self._queue = deque(sorted((*self._queue, *others), key=lambda each: each.order))

    def _take_back(self, waiting: Waiting, way: Way) -> None:
        """Keep a request that the leader did not take, or end it."""
        if way is Way.IN_DOUBT:
            waiting.may_be_stored = True
        elif way is Way.STRANGE_NUMBER and waiting.number is not None:
            self._numbers.forget(waiting.number.producer)
            waiting.number = None
        if waiting.is_lost or self._is_closed or waiting.is_late(self._now_s()):
            self._end_late(waiting)
        else:
            self._later.append(waiting)

    def _end_late(self, waiting: Waiting) -> None:
        """End a request without the leader."""
        self._release(waiting)
        if waiting.number is not None:
            self._numbers.resolve(waiting.number, stored=False)
        waiting.end_late()

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, link: DoorLink, waiting: Waiting) -> bool:
        """Send a request to the leader; False if it must wait for a number."""
        call = waiting.call
        if call.is_passed_on:
            self._release(waiting)
            call.turned(Way.NOT_STORED)
            return True
        number = waiting.number
        if number is None and 0 < waiting.count <= COUNT_MAX:
            number = waiting.number = self._numbers.take(waiting.count)
            if number is None:
                self._register(link, waiting.count)
                return False
        self._next_request += 1
        self._sent[self._next_request] = waiting
        self.counters.values["requests_passed_on"] += 1
        command = call.command
        producer, sequence, count = number or (-1, 0, 0)
        link.send(
            DoorRequest(
                self._next_request, command.code, command.opaque, command.flag, command.version,
                command.ext_fields, command.body, call.line.born_host, producer, sequence, count,
            )
        )  # fmt: skip
        return True

    def _register(self, link: DoorLink, count: int) -> None:
        """Ask for another registration, unless that is under way or would not help."""
        if self._registering is None and self._numbers.needs_registration(count):
            self._next_request += 1
            self._registering = self._next_request
            link.send(DoorRequest(self._registering, REGISTER, 0, 0, 0, None, b"", b"", -1, 0, 0))

    def _leave_link(self) -> None:
        """Give up the link to a member that leads no longer, and take its requests back."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()
            self._take_back_sent(link)

    def _take_back_sent(self, link: DoorLink) -> None:
        self._registering = None
        sent, self._sent = list(self._sent.values()), {}
        way = Way.IN_DOUBT if link.was_made else Way.NOT_STORED
        for waiting in sent:
            self._take_back(waiting, way)
        later, self._later = self._later, []
        self._put_back(later)

    # -- called by the link ------------------------------------------------------------------------

    def link_lost(self, link: DoorLink) -> None:
        """Keep what has no answer for the next link, which the next tick opens."""
        if link is self._link:
            self._link = None
            self._take_back_sent(link)

    def answered(self, answers: Sequence[DoorAnswer]) -> None:
        """Answer clients, with one write for each connection."""
        written: dict[Line, list[bytes]] = {}
        for answer in answers:
            if answer.number == self._registering:
                self._take_registration(answer)
                continue
            waiting = self._sent.pop(answer.number, None)
            if waiting is None:
                continue
            if answer.way not in (Way.ANSWERED, Way.STORED):
                self._take_back(waiting, answer.way)
                continue
            self._release(waiting)
            if waiting.number is not None:
                self._numbers.resolve(waiting.number, stored=answer.way is Way.STORED)
            if answer.way is Way.ANSWERED and waiting.is_in_doubt:
                in_doubt(waiting.call)  # a refusal, but an earlier copy may be stored
            elif not waiting.call.command.is_oneway:
                written.setdefault(waiting.call.line, []).append(answer.frame)
        for line, parts in written.items():
            line.send(b"".join(parts))
        self.go_on()

    def _take_registration(self, answer: DoorAnswer) -> None:
        self._registering = None
        if answer.way is Way.STORED:
            try:
                self._numbers.registered(decode_identity(answer.frame))
            except FormatError:
                return  # the next tick asks again
