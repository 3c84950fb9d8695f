"""Requests that other members pass on to this one, which they take for the leader."""

import asyncio
from collections.abc import Callable

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import REGISTER, DoorAnswer, DoorRequest, Way
from dledger_broker.door.between_members.door_numbers import Number
from dledger_broker.door.calls.call import Call, Door
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.embedding import Member
from dledger_node.remoting.connection_views import PeerConnection
from dledger_node.remoting.limits import Reason


class FromDoors:
    """Takes requests that other members pass on.

    The answers of one turn of the event loop are sent in one frame.
    """

    def __init__(self, member: Member, door: Door) -> None:
        """Until `open` is called, no request has an effect."""
        self._member = member
        self._door = door
        self._take: Callable[[Call], None] = _put_off
        self._loop = asyncio.get_running_loop()
        self._answers: dict[PeerConnection, list[DoorAnswer]] = {}

    def open(self, take: Callable[[Call], None]) -> None:
        """Serve requests from now on: `take` serves one if this member leads."""
        self._take = take

    def serve(self, command: RemotingCommand, peer: PeerConnection) -> None:
        """Take the requests of one frame."""
        try:
            requests = door_frames.decode_requests(command.body)
        except FormatError as error:
            peer.cut(Reason.PROTOCOL, str(error))
            return
        now_s = self._loop.time()
        for request in requests:
            if request.code == REGISTER:
                self._register(request.number, peer)
            else:
                way_back = PassedOnChannel(self, peer, request)
                self._take(PassedOnCall(way_back, request, self._door, now_s))

    def answer(self, peer: PeerConnection, answer: DoorAnswer) -> None:
        """Send an answer at the end of this turn of the event loop."""
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.setdefault(peer, []).append(answer)

    def _flush(self) -> None:
        answers, self._answers = self._answers, {}
        for peer, some in answers.items():
            for frame in door_frames.answer_frames(some):
                peer.send(frame)

    def _register(self, number: int, peer: PeerConnection) -> None:
        def done(code: DLedgerResponseCode, identity: int) -> None:
            if code is DLedgerResponseCode.SUCCESS:
                frame = door_frames.encode_identity(identity)
                self.answer(peer, DoorAnswer(number, Way.STORED, frame))
            else:
                frame = door_frames.encode_refusal(code)
                self.answer(peer, DoorAnswer(number, Way.NOT_STORED, frame))

        self._member.register_producer(done)


def _put_off(call: Call) -> None:
    """Let the other member ask again: this one's queues are not open yet."""
    call.turned(Way.NOT_STORED)


class PassedOnChannel:
    """The way back for one answer, to the member that passed the request on."""

    __slots__ = ("_doors", "_number", "_peer", "born_host", "reads_waiting", "way")

    def __init__(self, doors: FromDoors, peer: PeerConnection, request: DoorRequest) -> None:
        self.born_host = request.born_host
        self.reads_waiting = 0
        self.way = Way.ANSWERED
        self._doors = doors
        self._peer = peer
        self._number = request.number

    def send(self, data: bytes) -> None:
        """Return the answer, which is empty for a one-way request."""
        self.turn(self.way, data)

    def turn(self, way: Way, data: bytes = b"") -> None:
        """Report to the other member what became of the request."""
        self._doors.answer(self._peer, DoorAnswer(self._number, way, data))

    def go_on(self) -> None:
        """Do nothing: no request of the client is held up here."""


class PassedOnCall(Call):
    """A request that another member has passed on."""

    __slots__ = ("_given", "_way_back")

    is_passed_on = True

    def __init__(
        self, way_back: PassedOnChannel, request: DoorRequest, door: Door, arrived_s: float
    ) -> None:
        command = RemotingCommand(
            code=request.code, opaque=request.opaque, flag=request.flag, version=request.version,
            ext_fields=request.ext_fields, body=request.body,
        )  # fmt: skip
        super().__init__(way_back, command, door, arrived_s)
        self._way_back = way_back
        self._given = None
        if request.producer >= 0:
            self._given = Number(request.producer, request.sequence, request.count)

    @property
    def number(self) -> Number | None:
        """The numbers that the other member has given."""
        return self._given

    def turned(self, way: Way) -> None:
        """Let the other member decide what to do."""
        if not self.is_ended:
            self.is_ended = True
            self._way_back.turn(way)

    def note_stored(self) -> None:
        """Record that its messages are in the log."""
        self._way_back.way = Way.STORED
