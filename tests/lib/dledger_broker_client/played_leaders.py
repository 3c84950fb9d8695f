"""`Group`: a model of successive leaders, and a door that passes requests on to them.

Each leader appends after the committed entries; the next leader keeps any part of the other ones.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import REGISTER, DoorAnswer, DoorRequest, Way
from dledger_broker.door.between_members.door_link import DoorLinkOwner
from dledger_broker.door.calls.call import Call
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.metrics import BrokerCounters
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

Code = ResponseCode


class Channel:
    """A client's connection."""

    def __init__(self, client: int = 0) -> None:
        self.born_host = client.to_bytes(8, "big")
        self.reads_waiting = 0
        self.codes: dict[int, int] = {}
        """The codes of the answers, by opaque."""
        self.remarks: dict[int, str | None] = {}

    def send(self, data: bytes) -> None:
        """Keep the codes and remarks of answers."""
        for answer in FrameDecoder().feed(data):
            assert answer.opaque not in self.codes, "it is answered once"
            self.codes[answer.opaque] = answer.code
            self.remarks[answer.opaque] = answer.remark

    def go_on(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Entry:
    """An entry of the model's log; the body of a registration belongs to no message."""

    producer: int
    sequence: int
    opaque: int


@dataclass(eq=False)
class Link:
    """A link to one leader, whose requests arrive in order."""

    group: "Group"
    owner: DoorLinkOwner
    leader_id: str
    term: int
    was_made: bool = True
    arriving: list[DoorRequest] = field(default_factory=list)
    open: bool = True
    is_greeted: bool = False

    def send(self, request: DoorRequest, size: int) -> None:
        """Let a request arrive later."""
        assert size == door_frames.request_bytes(request.body, request.ext_fields)
        self.arriving.append(request)

    def make(self) -> None:
        """Establish the connection, unless it was abandoned before."""
        self.was_made |= self.open

    def greet(self) -> None:
        """Let the leader answer the HELLO, unless it has done so."""
        if self.open and not self.is_greeted:
            self.is_greeted = True
            self.owner.heard()

    def abort(self) -> None:
        """Close the link without notifying the owner."""
        self.open = False

    def lose(self) -> None:
        """Break the link."""
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
    """Successive leaders, and the door under test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.term = 0
        self.is_proven = self.leads = False
        self.leader: tuple[str, int] | None = None
        self.committed = 0
        self.tails: dict[int, Tail] = {}
        self.links: list[Link] = []
        self.makes_links = True
        """Whether connections are made at once."""
        self.soon: list[Callable[[], None]] = []
        """The callbacks that the door scheduled for the next turn of the event loop."""
        self.door = ToLeader(
            self,
            self.open_link,  # type: ignore[arg-type]
            self.serve,
            BrokerCounters(),
            lambda: self.now_s,
            self.soon.append,
        )

    def open_link(self, owner: DoorLinkOwner, leader_id: str, term: int) -> Link:
        """Begin to connect."""
        self.links.append(Link(self, owner, leader_id, term, self.makes_links))
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

    def turn(self) -> bool:
        """Run the next turn of the event loop; return whether any callback was due."""
        due, self.soon[:] = list(self.soon), []
        for call in due:
            call()
        return bool(due)

    def run_all_turns(self) -> None:
        """Run turns of the event loop until there is nothing to run."""
        while self.turn():
            pass

    def lose_leader(self) -> None:
        """Let no member lead."""
        self.leader, self.leads, self.is_proven = None, False, False
        self.door.leader_changed()

    def arrive(self, link: Link) -> None:
        """Let the next request of a link arrive at its leader, which may be deposed."""
        if not (link.arriving and link.was_made):
            return
        link.greet()
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
        """Commit some entries of the current leader, and answer their requests."""
        tail = self.tails.get(self.term)
        if tail is None or self.leads:
            return
        self.commit_up_to(rng.randint(self.committed, len(tail.entries)))

    def commit_up_to(self, count: int) -> None:
        """Commit `count` entries of the current leader, and answer their requests."""
        tail = self.tails[self.term]
        self.committed = max(self.committed, count)
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
        """Answer a request over the link on which it arrived, unless that is closed."""
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
            self.run_all_turns()
            for link in self.links:
                link.make()
                while link.open and link.arriving:
                    self.arrive(link)
            self.committed = len(self.tails[self.term].entries)
            self.commit(random.Random(0))
        assert self.door.count == 0


def call_of(
    group: Group,
    channel: Channel,
    opaque: int,
    code: int = RequestCode.SEND_MESSAGE_V2,
    body: bytes = b"x",
) -> Call:
    """Return a client's request."""
    command = RemotingCommand(code=code, opaque=opaque, ext_fields={}, body=body)
    return Call(channel, command, group.door, group.now_s)
