"""Requests that only the leader can serve: served here if this member leads, and passed on if not.

While no leader is known, or a new one is not ready, requests wait here. When the leader goes, those
without an answer are sent to the next one. A message keeps the number that it was sent under
(`door_numbers`), so that it is in the log once; every other request may be repeated.

A request that was never passed on, or certainly had no effect, ends with code 14 after 2 s;
producers then try again. One that may have taken effect ends with code 1 after 2.5 s. A leader of a
release that takes no requests from other members is not asked again for 3 s: requests end with 14
at once. The same holds for a leader from which nothing came over a new link, until something comes
over another one.
"""

from collections.abc import Callable, Iterable, Sequence

from dledger_broker.door.between_members import refusals
from dledger_broker.door.between_members.door_frames import (
    REQUEST_BYTES_MAX,
    DoorAnswer,
    Way,
    registration,
    request_bytes,
)
from dledger_broker.door.between_members.door_link import DoorLink, OpenLink
from dledger_broker.door.between_members.door_numbers import DoorNumbers
from dledger_broker.door.between_members.hearing import Hearing
from dledger_broker.door.between_members.known_leader import KnownLeader, LeaderTerm
from dledger_broker.door.between_members.refusals import AvoidedLeader
from dledger_broker.door.between_members.registrations import Registrations
from dledger_broker.door.calls.call import Call, Channel
from dledger_broker.door.passing_on.endings import Endings
from dledger_broker.door.passing_on.on_the_way import OnTheWay
from dledger_broker.door.passing_on.slices import REQUESTS_MAX, WaitingSlices
from dledger_broker.door.passing_on.waiting import SENDS, STORING, WaitingRequest, in_doubt, refuse
from dledger_broker.door.passing_on.waiting_room import WaitingRoom
from dledger_broker.metrics import BrokerCounters
from dledger_node.slices import CallSoon


class ToLeader:
    """Passes all requests to the leader."""

    def __init__(
        self,
        leadership: KnownLeader,
        open_link: OpenLink,
        serve: Callable[[Call], None],
        counters: BrokerCounters,
        now_s: Callable[[], float],
        call_soon: CallSoon | None = None,
    ) -> None:
        """`serve` answers a request if this member leads and is ready; `call_soon` is that of
        `WaitingSlices`.
        """
        self.counters = counters
        self._leadership = leadership
        self._open_link = open_link
        self._serve = serve
        self._now_s = now_s
        self._numbers = DoorNumbers()
        self._registrations = Registrations(self._numbers, now_s)
        self._room = WaitingRoom()
        self._slices = WaitingSlices(lambda: self.go_on(is_next_slice=True), call_soon)
        self.endings = Endings(self._leave, call_soon)
        self._sent = OnTheWay()
        self._link: DoorLink | None = None
        self._hearing = Hearing(now_s)
        self._incapable = AvoidedLeader(now_s, refusals.INCAPABLE)
        self._next_order = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many requests wait for the leader, or for its answer."""
        return self._room.count

    @property
    def has_incapable_leader(self) -> bool:
        """Whether the leader's release takes no requests from other members."""
        return self._incapable.refusal(self._leadership.leader) is not None

    def take(self, call: Call) -> None:
        """Serve a request, pass it on, or let it wait."""
        must_follow = self._room.turns.must_follow(call.command, call.channel.born_host)
        if not (must_follow or self._room.has_next) and self._leadership.is_proven:
            self._serve(call)
            return
        waiting = self._enter(call)
        if waiting is not None and must_follow:
            self._room.put_off(waiting)
        elif waiting is not None:
            self._room.queue.append(waiting)
            if self._slices.is_next_due:
                self._hand_on(1)  # at least as many leave as come, so that the room empties
            else:
                self.go_on()

    def turned(self, call: Call, way: Way) -> None:
        """Take back a request that this member could not serve as the leader."""
        waiting = call.waiting
        if waiting is None:
            if way is Way.IN_DOUBT and call.command.code in STORING:
                in_doubt(call)
                return
            if (waiting := self._enter(call)) is None:
                return
        else:
            assert isinstance(waiting, WaitingRequest)
            self._room.enter(waiting)
        self._take_back([waiting], way)

    def go_on(self, *, is_next_slice: bool = False) -> None:
        """Serve or send what waits, as far as that is possible now: a slice in each turn."""
        if self._slices.is_next_due:
            return
        if self._leadership.is_proven and not is_next_slice:
            self._room.put_back()  # not between slices: what was not served waits for the next tick
        self._hand_on(REQUESTS_MAX)

    def _hand_on(self, requests_max: int) -> None:
        """Serve or send at most `requests_max` of the waiting requests."""
        leadership = self._leadership
        if leadership.is_proven:
            self._leave_link()
            for waiting in self._slices.of(self._room.queue, requests_max):
                self._room.leave(waiting)
                waiting.call.waiting = waiting
                self._serve(waiting.call)
                if not leadership.is_proven:
                    break
            return
        if leadership.leads or (leader := leadership.leader) is None:
            return
        refused = self._incapable.refusal(leader) or self._hearing.refusal(leader)
        if refused is not None:
            self.endings.end(self._room.take_all(), refused)
            return
        link = self._link
        is_old = link is None or (link.leader_id, link.term) != leader
        if link is None or is_old or self._hearing.is_of_no_use():
            self._leave_link()
            if not self._room.has_next or (link := self._open(leader)) is None:
                return
        self._send_next(link, requests_max)

    def tick(self) -> None:
        """Try again what could not be taken, and end what has waited for too long."""
        now_s = self._now_s()
        self._room.put_back_due(now_s)
        self.endings.end(self._room.take_late(now_s), refusals.LATE)
        if self._link is not None and not self._link.was_made and self._sent.has_late(now_s):
            self._leave_link()  # so that none of its requests can reach the leader later
        self._end_late_sent(now_s)
        self.go_on()

    def _end_late_sent(self, now_s: float) -> None:
        """End what has no answer in time, and give up a link over which nothing comes."""
        late = self._sent.take_unanswered(now_s)
        for waiting in late:
            self._hearing.unanswered(waiting.sent_s)
            waiting.may_be_stored = True
        self.endings.end(late, refusals.UNANSWERED)
        link, is_silent = self._link, self._hearing.is_dead()
        if self._registrations.ends_late(self._hearing.heard_s) or is_silent:
            self._leave_link()
        leader = None if link is None else (link.leader_id, link.term)
        if is_silent and leader is not None and self._hearing.gives_up(leader):
            self._open(leader)  # what comes over it, the answer to the HELLO first, ends the pause

    def leader_changed(self) -> None:
        """Go on with another leader, or none, or the same one that is now ready."""
        self._registrations.leader_changed()
        self._hearing.leader_changed()
        self._room.put_back()
        self.go_on()

    def ended(self, call: Call) -> None:
        """Record that this member has answered a request as the leader, after it waited."""
        waiting, call.waiting = call.waiting, None
        if waiting is not None and waiting.number is not None:
            self._numbers.resolve(waiting.number, stored=waiting.is_stored)

    def close(self) -> None:
        """Refuse all that waits."""
        self._is_closed = True
        self._leave_link()
        self.endings.end(self._room.take_all(), refusals.LATE)
        self.endings.end_all_now()

    # -- waiting -----------------------------------------------------------------------------------

    def _enter(self, call: Call) -> WaitingRequest | None:
        """Return a request that is now counted as waiting; None if it is refused."""
        waiting = WaitingRequest(call, self._next_order)
        refusal = "this member stops" if self._is_closed else self._room.refusal(waiting)
        if refusal is not None:
            refuse(call, refusal)
            return None
        self._next_order += 1
        self._room.enter(waiting)
        return waiting

    def _take_back(self, every: Iterable[WaitingRequest], way: Way) -> None:
        """Keep requests that the leader did not take, or end them."""
        self.endings.end([each for each in every if not self._keep(each, way)], refusals.LATE)

    def _keep(self, waiting: WaitingRequest, way: Way) -> bool:
        """Keep a request that the leader did not take, unless it must end."""
        if way is Way.IN_DOUBT:
            waiting.may_be_stored = True
        elif way is Way.STRANGE_NUMBER and waiting.number is not None:
            self._numbers.forget(waiting.number.producer)
            waiting.number = None
        now_s = self._now_s()
        if waiting.is_lost or self._is_closed or waiting.is_late(now_s):
            return False
        waiting.pause(now_s)
        self._room.put_off(waiting)
        return True

    def _leave(self, waiting: WaitingRequest) -> None:
        """Stop counting a request that ends without the leader."""
        self._room.leave(waiting)
        if waiting.number is not None:
            self._numbers.resolve(waiting.number, stored=False)

    # -- sending -----------------------------------------------------------------------------------

    def _send_next(self, link: DoorLink, requests_max: int) -> None:
        """Send what waits, in order; requests that need no numbers do not wait for them."""
        room = self._room
        for waiting in self._slices.of(room.unnumbered, requests_max):
            if not self._send(link, waiting):
                room.unnumbered.appendleft(waiting)
                break
        for waiting in self._slices.of(room.queue, requests_max):
            must_wait = room.unnumbered and waiting.needs_number
            if must_wait or not self._send(link, waiting):
                room.unnumbered.append(waiting)

    def _send(self, link: DoorLink, waiting: WaitingRequest) -> bool:
        """Send a request to the leader; return False if it must wait for a number."""
        call = waiting.call
        if call.is_passed_on or waiting.size > REQUEST_BYTES_MAX:
            self.endings.end([waiting], refusals.TOO_LONG)
            return True  # a member that passed it on asks another one
        if self._room.turns.is_overtaken(waiting):
            self.endings.end([waiting], refusals.OVERTAKEN)
            return True
        if waiting.needs_number:
            waiting.number = self._numbers.take(waiting.count)
            if waiting.number is None:
                self._register(link, waiting.count)
                return False
        self.counters.values["requests_passed_on" if waiting.sent_s < 0 else "requests_resent"] += 1
        request = waiting.request(self._sent.sent(waiting, self._now_s()))
        link.send(request, waiting.size)
        return True

    def _register(self, link: DoorLink, count: int) -> None:
        """Ask for another registration, unless that is under way or would not help."""
        if self._registrations.may_ask(count):
            request_number = self._sent.next_number()
            self._registrations.asked(request_number)
            link.send(registration(request_number), request_bytes(b"", None))

    def _open(self, leader: LeaderTerm) -> DoorLink | None:
        """Begin to connect to a leader; return None if its address is not known."""
        self._hearing.opened()
        self._link = self._open_link(self, *leader)
        return self._link

    def _leave_link(self) -> None:
        """Give up the link to a member that no longer leads, and take its requests back."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()
            self._take_back_sent(link)

    def _take_back_sent(self, link: DoorLink) -> None:
        self._registrations.link_ended()
        way = Way.IN_DOUBT if link.was_made else Way.NOT_STORED
        self._take_back(self._sent.take_all(), way)
        self._room.put_back()

    # -- called by the link ------------------------------------------------------------------------

    def link_lost(self, link: DoorLink) -> None:
        """Keep what has no answer for the next link, which the next tick opens."""
        if link is self._link:
            self._link = None
            self._take_back_sent(link)

    def heard(self) -> None:
        """Record that the leader is alive."""
        self._hearing.heard()

    def refused(self, requests: range) -> None:
        """End the requests that the leader cannot take, and do not ask it for some time."""
        link = self._link
        if link is None:
            return
        leader = link.leader_id, link.term
        self._incapable.avoid(leader)
        refused = self._incapable.refusal(leader) or refusals.LATE
        taken = [each for number in requests if (each := self._sent.take(number)) is not None]
        self.endings.end(taken, refused)
        if self._registrations.is_under_way(requests):
            self._registrations.link_ended()
        if not self._sent:
            self._leave_link()
        self.go_on()

    def answered(self, answers: Sequence[DoorAnswer]) -> None:
        """Answer clients, with one write for each connection."""
        self._hearing.heard()
        written: dict[Channel, list[bytes]] = {}
        ended: list[WaitingRequest] = []
        for answer in answers:
            if self._registrations.expects(answer.number):
                self._take_registration(answer)
                continue
            waiting = self._sent.take(answer.number)
            if waiting is None:
                continue
            if answer.way not in (Way.ANSWERED, Way.STORED):
                if not self._keep(waiting, answer.way):
                    ended.append(waiting)
                continue
            self._room.leave(waiting)
            if waiting.number is not None:
                self._numbers.resolve(waiting.number, stored=answer.way is Way.STORED)
            if answer.way is Way.STORED and waiting.call.command.code in SENDS:
                self.counters.sends.arrivals_s.append(waiting.call.arrived_s)
            if answer.way is Way.ANSWERED and waiting.is_in_doubt:
                in_doubt(waiting.call)  # a refusal, but an earlier copy may be stored
            elif not waiting.call.command.is_oneway:
                written.setdefault(waiting.call.channel, []).append(answer.frame)
        for channel, parts in written.items():
            channel.send(b"".join(parts))
        self.counters.sends.answered(self._now_s())
        self.endings.end(ended, refusals.LATE)
        self.go_on()

    def _take_registration(self, answer: DoorAnswer) -> None:
        if (refused := refusals.unregistered(self._registrations.answered(answer))) is None:
            return
        unnumbered = list(self._room.unnumbered)
        self._room.unnumbered.clear()
        self.endings.end(unnumbered, refused)
