"""Links between members over real connections: long requests, silence, and other releases."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import DoorAnswer, DoorRequest, Way
from dledger_broker.door.between_members.door_link import BYTES_MAX, DoorLink, DoorLinkOwner
from dledger_broker.door.between_members.hearing import GRACE_S
from dledger_broker.door.between_members.refusals import AVOIDED_S
from dledger_broker.door.calls.call import Call
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.metrics import BrokerCounters
from dledger_broker_client.played_leaders import Channel, Group
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import SystemCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.remoting.service import system_answer
from dledger_wire.accepting import close_accepting

Code = ResponseCode
Answer = Callable[[RemotingCommand], bytes]
QUERY = RequestCode.QUERY_CONSUMER_OFFSET


def not_supported(command: RemotingCommand) -> bytes:
    """Answer as a member does that knows no requests of other members."""
    remark = f"request code {command.code} is not supported"
    return system_answer(command.opaque, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def served(command: RemotingCommand) -> bytes:
    """Answer every request of a frame with SUCCESS."""
    return door_frames.encode_answers(
        [
            DoorAnswer(each.number, Way.ANSWERED, encode_answer(each.opaque, 0))
            for each in door_frames.decode_requests(command.body)
        ]
    )


class Leader:
    """A leader's DLedger port; `answer` returns what it sends for a frame."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.frames: list[RemotingCommand] = []
        self.connections = 0
        self.changed = asyncio.Condition()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                for command in decoder.feed(data):
                    self.frames.append(command)
                    writer.write(self.answer(command))
                async with self.changed:
                    self.changed.notify_all()
        writer.transport.abort()
        async with self.changed:
            self.connections -= 1
            self.changed.notify_all()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something holds that a frame or the end of a connection makes true."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(is_so)


class NotedChannel(Channel):
    """A client's connection that tells of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def send(self, data: bytes) -> None:
        super().send(data)
        self.changed.set()


class Member:
    """A member that follows the leader n1, and opens links to it."""

    is_proven = leads = False
    leader = ("n1", 1)

    def __init__(self, leader: Leader) -> None:
        self.now_s = 0.0
        self.port = leader.port
        self.channel = NotedChannel()
        self.door = ToLeader(self, self._open, lambda _: None, BrokerCounters(), lambda: self.now_s)

    def _open(self, owner: DoorLinkOwner, leader_id: str, term: int) -> DoorLink:
        link = DoorLink(owner, leader_id, term)
        link.open("127.0.0.1", self.port, b"")
        return link

    def take(self, opaque: int, code: RequestCode) -> None:
        command = RemotingCommand(code=code, opaque=opaque, ext_fields={}, body=b"x")
        self.door.take(Call(self.channel, command, self.door, self.now_s))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.door.tick()

    async def answered(self, count: int) -> None:
        """Wait until so many requests are answered."""
        async with asyncio.timeout(30):
            while len(self.channel.codes) < count:
                self.channel.changed.clear()
                await self.channel.changed.wait()


def run(answer: Answer, play: Callable[[Leader, Member], Awaitable[None]]) -> None:
    """Play with a leader that answers so, and a member."""

    async def main() -> None:
        leader = Leader(answer)
        server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
        leader.port = server.sockets[0].getsockname()[1]
        member = Member(leader)
        try:
            await play(leader, member)
        finally:
            member.door.close()
            await close_accepting(server)
            await leader.until(lambda: leader.connections == 0)

    asyncio.run(main())


def test_a_leader_of_an_older_release_is_named_at_once_and_not_asked_again_for_a_while() -> None:
    async def play(leader: Leader, member: Member) -> None:
        for opaque, code in ((1, RequestCode.SEND_MESSAGE_V2), (2, QUERY)):
            member.take(opaque, code)
        await member.answered(2)
        asked = len(leader.frames)
        member.wait(AVOIDED_S - 0.1)
        member.take(3, RequestCode.SEND_MESSAGE_V2)

        assert member.channel.codes == dict.fromkeys((1, 2, 3), Code.SERVICE_NOT_AVAILABLE)
        assert "n1 leads, and its release takes no requests" in (member.channel.remarks[1] or "")
        assert member.door.has_incapable_leader
        assert len(leader.frames) == asked

    run(not_supported, play)


def test_a_leader_that_was_upgraded_is_asked_again() -> None:
    async def play(leader: Leader, member: Member) -> None:
        member.take(1, QUERY)
        await member.answered(1)
        leader.answer = served
        member.wait(AVOIDED_S + 0.1)
        member.take(2, QUERY)
        await member.answered(2)

        assert member.channel.codes == {1: Code.SERVICE_NOT_AVAILABLE, 2: Code.SUCCESS}
        assert not member.door.has_incapable_leader

    run(not_supported, play)


def test_a_link_over_which_nothing_comes_is_replaced_once_a_request_is_late() -> None:
    async def play(leader: Leader, member: Member) -> None:
        member.take(1, QUERY)
        await member.answered(1)
        leader.answer = lambda _: b""
        member.take(2, QUERY)
        await leader.until(lambda: len(leader.frames) == 2)
        leader.answer = served
        member.wait(2.6)
        member.wait(GRACE_S)
        member.take(3, QUERY)
        await member.answered(3)

        refused = {2: Code.SERVICE_NOT_AVAILABLE}
        assert member.channel.codes == {1: Code.SUCCESS, **refused, 3: Code.SUCCESS}
        assert "the leader did not answer in time" in (member.channel.remarks[2] or "")
        assert len(leader.frames) == 3

    run(served, play)


def test_a_leader_that_stays_silent_over_two_connections_is_not_asked_for_a_while() -> None:
    async def play(leader: Leader, member: Member) -> None:
        member.now_s = 10.0
        leader.answer = served
        member.take(1, QUERY)
        await member.answered(1)
        leader.answer = lambda _: b""
        for opaque in (2, 3):
            member.take(opaque, QUERY)
            await leader.until(lambda opaque=opaque: len(leader.frames) == opaque)  # type: ignore[misc]
            member.wait(2.6)
            member.wait(GRACE_S)
        member.take(4, QUERY)
        assert "does not answer this member" in (member.channel.remarks[4] or "")
        assert not member.door.has_incapable_leader

        leader.answer = served
        member.wait(AVOIDED_S + 0.1)
        member.take(5, QUERY)
        await member.answered(5)

        refused = dict.fromkeys((2, 3, 4), Code.SERVICE_NOT_AVAILABLE)
        assert member.channel.codes == {1: Code.SUCCESS, **refused, 5: Code.SUCCESS}

    run(served, play)


def test_an_answer_that_no_member_gives_ends_the_link() -> None:
    def strange(command: RemotingCommand) -> bytes:
        return system_answer(command.opaque, SystemCode.SYSTEM_ERROR, "strange")

    async def play(leader: Leader, member: Member) -> None:
        member.take(1, QUERY)
        await leader.until(lambda: len(leader.frames) == 1 and leader.connections == 0)
        leader.answer = served
        member.door.tick()
        await member.answered(1)

        assert member.channel.codes == {1: Code.SUCCESS}

    run(strange, play)


class Transport:
    """What a link writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_extra_info(self, _: str) -> None:
        return None


@pytest.mark.parametrize("seed", range(5))
def test_frames_are_bounded_by_all_that_requests_have(seed: int) -> None:
    rng, transport = random.Random(seed), Transport()
    requests = [
        DoorRequest(
            number, 310, 1, 0, 0,
            {f"x{n}": rng.choice("pß€") * rng.randint(0, 1000) for n in range(rng.randint(0, 60))},
            bytes(rng.choice((0, 2000, 200_000))), bytes(8), 1, 1, 1,
        )
        for number in range(300)
    ]  # fmt: skip

    async def send() -> None:
        link = DoorLink(Group().door, "n1", 1)
        link.connection_made(transport)  # type: ignore[arg-type]
        for request in requests:
            link.send(request, door_frames.request_bytes(request.body, request.ext_fields))
        await asyncio.sleep(0)

    asyncio.run(send())
    sent = [door_frames.decode_requests(each.body) for each in read(transport.written)]

    assert [request for some in sent for request in some] == requests
    assert all(len(some) == 1 or size_of(some) <= BYTES_MAX for some in sent)


def read(written: list[bytes]) -> list[RemotingCommand]:
    return list(FrameDecoder().feed(b"".join(written)))


def size_of(requests: list[DoorRequest]) -> int:
    return len(door_frames.encode_requests(requests))


def test_any_number_of_answers_is_divided_into_frames() -> None:
    answers = [DoorAnswer(n, Way.STORED, bytes(n % 50 * 1000)) for n in range(2000)]
    found = read(list(door_frames.answer_frames(answers)))

    assert [each for frame in found for each in door_frames.decode_answers(frame.body)] == answers
    assert max(len(frame.body) for frame in found) <= 1.1 * (1 << 20)


def test_the_longest_request_that_is_passed_on_fits_a_frame() -> None:
    ext = {f"x{n}": "€" * 100 for n in range(64)}
    rest = door_frames.REQUEST_BYTES_MAX - door_frames.request_bytes(b"", ext)
    request = DoorRequest(1, 310, 1, 0, 0, ext, bytes(rest), bytes(20), 1, 1, 1)

    assert len(door_frames.encode_requests([request])) <= frames.FRAME_BYTES_MAX
