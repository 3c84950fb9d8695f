"""Requests on their way to the leader, over links that break and through leaders that change.

`Group` is a model of the log: each leader appends behind what is committed, and the next leader
keeps any part of what is not.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from dledger_broker.door import door_frames
from dledger_broker.door.call import Call
from dledger_broker.door.door_frames import REGISTER, DoorAnswer, DoorRequest, Way
from dledger_broker.door.door_link import LinkOwner
from dledger_broker.door.door_numbers import COUNT_MAX
from dledger_broker.door.to_leader import WAITING_MAX, ToLeader
from dledger_broker.metrics import BrokerCounters
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

Code = ResponseCode


class Line:
    """A client's connection."""

    def __init__(self) -> None:
        self.born_host = bytes(8)
        self.reads_waiting = 0
        self.codes: dict[int, int] = {}
        """The codes of the answers, by opaque."""

    def send(self, data: bytes) -> None:
        for answer in FrameDecoder().feed(data):
            assert answer.opaque not in self.codes, "it is answered once"
            self.codes[answer.opaque] = answer.code

    def go_on(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Entry:
    """An entry of the model's log; a registration has the body of nobody."""

    producer: int
    sequence: int
    opaque: int


@dataclass(eq=False)
class Link:
    """A link to one leader, whose requests arrive in order."""

    group: "Group"
    owner: LinkOwner
    leader_id: str
    term: int
    was_made: bool = True
    arriving: list[DoorRequest] = field(default_factory=list)
    open: bool = True

    def send(self, request: DoorRequest) -> None:
        self.arriving.append(request)

    def abort(self) -> None:
        self.open = False

    def lose(self) -> None:
        if self.open:
            self.open = False
            self.owner.link_lost(self)  # type: ignore[arg-type]


@dataclass
class Tail:
    """The log of one leader, of which `committed` entries are committed."""

    entries: list[Entry | None]
    waiting: list[tuple[int, Link, int]] = field(default_factory=list)
    """Index, link and number of requests that wait until their entries are committed."""


class Group:
    """Leaders one after another, and the door that is tested."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.term = 0
        self.is_proven = self.leads = False
        self.leader: tuple[str, int] | None = None
        self.committed = 0
        self.tails: dict[int, Tail] = {}
        self.links: list[Link] = []
        self.door = ToLeader(
            self,
            self.open_link,  # type: ignore[arg-type]
            self.serve,
            BrokerCounters(),
            lambda: self.now_s,
        )

    def open_link(self, owner: LinkOwner, leader_id: str, term: int) -> Link:
        self.links.append(Link(self, owner, leader_id, term))
        return self.links[-1]

    def serve(self, call: Call) -> None:
        """Serve a request at this member, as its leader."""
        number = call.number
        tail = self.tails[self.term]
        producer, sequence = (number.producer, number.sequence) if number else (-1, 0)
        key = Entry(producer, sequence, call.command.opaque)
        if number and key in tail.entries[: self.committed]:
            call.note_stored()
            call.answer(Code.SUCCESS)
            return
        if number and key in tail.entries:
            call.turned(Way.IN_DOUBT)
            return
        tail.entries.append(
            Entry(*key.__dict__.values()) if number else Entry(-1, 0, call.command.opaque)
        )
        self.committed = len(tail.entries)  # a quorum of one, for simplicity
        call.answer(Code.SUCCESS)

    # -- what may happen ---------------------------------------------------------------------------

    def elect(self, rng: random.Random, *, here: bool) -> None:
        """Let another leader begin with the committed entries, and some of the others."""
        entries = self.tails[self.term].entries if self.tails else []
        kept = rng.randint(self.committed, len(entries))
        self.term += 1
        self.tails[self.term] = Tail([*entries[:kept], None])
        self.leads = self.is_proven = here
        if here:
            self.committed = kept + 1
            self.leader = ("n0", self.term)
        else:
            self.leader = (f"n{rng.randint(1, 2)}", self.term)
        self.door.leader_changed()

    def lose_leader(self) -> None:
        self.leader, self.leads, self.is_proven = None, False, False
        self.door.leader_changed()

    def arrive(self, link: Link) -> None:
        """Let the next request of a link arrive at its leader, which may be deposed."""
        if not link.arriving:
            return
        request, tail = link.arriving.pop(0), self.tails[link.term]
        if request.code == REGISTER:
            tail.entries.append(Entry(len(tail.entries), 0, 0))
            tail.waiting.append((len(tail.entries) - 1, link, request.number))
            return
        entry = Entry(request.producer, request.sequence, request.opaque)
        if Entry(request.producer, 0, 0) not in tail.entries:
            self.answer(link, request.number, Way.STRANGE_NUMBER)
        elif entry in tail.entries[: self.committed]:
            self.answer(link, request.number, Way.STORED, request.opaque)
        elif entry in tail.entries:
            self.answer(link, request.number, Way.IN_DOUBT)
        else:
            tail.entries.append(entry)
            tail.waiting.append((len(tail.entries) - 1, link, request.number))

    def commit(self, rng: random.Random) -> None:
        """Commit some entries of the present leader, and answer their requests."""
        tail = self.tails.get(self.term)
        if tail is None or self.leads:
            return
        self.committed = rng.randint(self.committed, len(tail.entries))
        done = [each for each in tail.waiting if each[0] < self.committed]
        tail.waiting = [each for each in tail.waiting if each[0] >= self.committed]
        for index, link, number in done:
            entry = tail.entries[index]
            assert entry is not None
            if entry.sequence:
                self.answer(link, number, Way.STORED, entry.opaque)
            else:
                self.answer(link, number, Way.STORED, identity=index)

    @staticmethod
    def answer(
        link: Link, number: int, way: Way, opaque: int | None = None, identity: int | None = None
    ) -> None:
        if link.open:
            frame = b"" if opaque is None else encode_answer(opaque, 0)
            if identity is not None:
                frame = door_frames.encode_identity(identity)
            link.owner.answered([DoorAnswer(number, way, frame)])

    def stored(self) -> Counter[int]:
        """Return how often each message is in the committed log."""
        tail = self.tails[self.term]
        entries = [each for each in tail.entries[: self.committed] if each is not None]
        return Counter(each.opaque for each in entries if each.opaque)

    def settle(self) -> None:
        """Let one leader answer everything."""
        self.elect(random.Random(0), here=False)
        for _ in range(100):
            self.door.tick()
            for link in self.links:
                while link.open and link.arriving:
                    self.arrive(link)
            self.committed = len(self.tails[self.term].entries)
            self.commit(random.Random(0))
        assert self.door.count == 0


def call_of(group: Group, line: Line, opaque: int, code: int = RequestCode.SEND_MESSAGE_V2) -> Call:
    command = RemotingCommand(code=code, opaque=opaque, ext_fields={}, body=b"x")
    return Call(line, command, group.door, group.now_s)


def play(seed: int) -> tuple[Group, Line, int]:
    """Play a random schedule; return the group, the client and the number of its sends."""
    rng, group, line, sent = random.Random(seed), Group(), Line(), 0
    for _ in range(rng.randint(20, 200)):
        match rng.randrange(12):
            case 0:
                group.elect(rng, here=rng.random() < 0.2)
            case 1:
                group.lose_leader()
            case 2 if group.links:
                rng.choice(group.links).lose()
            case 3:
                group.now_s += rng.random()
                group.door.tick()
            case 4 | 5:
                group.commit(rng)
            case 6 | 7 | 8 if group.links:
                group.arrive(rng.choice(group.links[-3:]))
            case _:
                for _ in range(rng.randint(1, 5)):
                    sent += 1
                    group.door.take(call_of(group, line, sent))
    group.settle()
    return group, line, sent


@pytest.mark.parametrize("seed", range(300))
def test_a_message_is_in_the_log_once_and_its_answer_says_so(seed: int) -> None:
    group, line, sent = play(seed)

    stored = group.stored()
    assert line.codes.keys() == set(range(1, sent + 1)), "everything is answered"
    assert set(stored.values()) <= {1}
    for opaque, code in line.codes.items():
        if code == Code.SUCCESS:
            assert stored[opaque] == 1
        elif code == Code.SERVICE_NOT_AVAILABLE:
            assert stored[opaque] == 0
        else:
            assert code == Code.SYSTEM_ERROR


def test_the_schedules_store_most_messages_and_leave_some_in_doubt() -> None:
    codes: Counter[int] = Counter()
    for seed in range(100):
        codes.update(play(seed)[1].codes.values())

    assert codes[Code.SUCCESS] > codes.total() / 2
    assert codes[Code.SERVICE_NOT_AVAILABLE] > 0
    assert codes[Code.SYSTEM_ERROR] > 0


def wait(group: Group, seconds: float) -> None:
    group.now_s += seconds
    group.door.tick()


def test_a_request_waits_two_seconds_for_a_leader() -> None:
    group, line = Group(), Line()
    group.door.take(call_of(group, line, 1))

    wait(group, 1.99)
    assert line.codes == {}
    wait(group, 0.02)

    assert line.codes == {1: Code.SERVICE_NOT_AVAILABLE}


def test_a_message_without_an_answer_is_in_doubt_after_two_and_a_half_seconds() -> None:
    group, line = Group(), Line()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, line, 1))
    link = group.links[0]
    group.arrive(link)
    group.committed = 2
    group.commit(random.Random(0))

    wait(group, 2.4)
    assert line.codes == {}
    wait(group, 0.2)

    assert line.codes == {1: Code.SYSTEM_ERROR}


def test_what_may_be_repeated_is_sent_again_without_a_number() -> None:
    group, line = Group(), Line()
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, line, 1, RequestCode.QUERY_CONSUMER_OFFSET))
    [request] = group.links[0].arriving
    group.links[0].lose()
    group.door.tick()

    [again] = group.links[1].arriving
    assert (request.producer, again.producer) == (-1, -1)
    assert again.opaque == 1


def test_only_so_many_requests_wait() -> None:
    group, line = Group(), Line()
    for opaque in range(1, WAITING_MAX + 2):
        group.door.take(call_of(group, line, opaque))

    assert line.codes == {WAITING_MAX + 1: Code.SERVICE_NOT_AVAILABLE}
    assert group.door.count == WAITING_MAX
    group.door.close()
    assert len(line.codes) == WAITING_MAX + 1
    assert group.door.count == 0


def test_a_request_that_another_member_passed_on_is_not_passed_on_again() -> None:
    class PassedOn(Call):
        is_passed_on = True
        ways: Sequence[Way] = ()

        def turned(self, way: Way) -> None:
            self.ways = (*self.ways, way)

    group, line = Group(), Line()
    command = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=1, ext_fields={})
    call = PassedOn(line, command, group.door, group.now_s)
    group.elect(random.Random(0), here=False)
    group.door.take(call)

    assert call.ways == (Way.NOT_STORED,)
    assert group.door.count == 0


def send_one(group: Group, line: Line) -> Link:
    """Let a leader get a message under a number; return the link, whose request has arrived."""
    group.elect(random.Random(0), here=False)
    group.door.take(call_of(group, line, 1))
    [link] = group.links
    group.arrive(link)
    group.committed = 2
    group.commit(random.Random(0))
    return link


def test_a_message_that_may_be_stored_gets_no_second_number_if_the_first_is_forgotten() -> None:
    group, line = Group(), Line()
    send_one(group, line).lose()
    group.door.tick()
    [_, link] = group.links
    group.answer(link, link.arriving[0].number, Way.STRANGE_NUMBER)

    assert line.codes == {1: Code.SYSTEM_ERROR}


def test_a_message_whose_number_is_forgotten_is_sent_again_under_another() -> None:
    group, line = Group(), Line()
    link = send_one(group, line)
    group.answer(link, link.arriving[0].number, Way.STRANGE_NUMBER)
    group.door.tick()

    assert [request.code for request in link.arriving] == [310, REGISTER]
    assert line.codes == {}


def test_numbers_of_messages_that_this_member_served_as_the_leader_are_free_again() -> None:
    group, line = Group(), Line()
    for first in range(1, 6 * COUNT_MAX, COUNT_MAX // 2):
        group.elect(random.Random(0), here=False)
        for opaque in range(first, first + COUNT_MAX // 2):
            group.door.take(call_of(group, line, opaque))
        group.arrive(group.links[-1])
        group.committed = len(group.tails[group.term].entries)
        group.commit(random.Random(0))
        group.elect(random.Random(0), here=True)

    registrations = [
        entry for entry in group.tails[group.term].entries if entry and not entry.sequence
    ]
    assert set(line.codes.values()) == {Code.SUCCESS}
    assert len(registrations) == 1
