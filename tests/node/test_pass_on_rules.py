"""How a follower passes appends on, with the leader's port played by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_formats.protocol import frames, passing_on, requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.go_away import GO_AWAY_FRAME, TAKES_GO_AWAY_FLAG
from dledger_formats.settings import NodeSettings
from dledger_node.remoting.service import AppendCall, BatchCall
from dledger_node.services import passed_on
from dledger_node.services.passed_on import PassedOn
from dledger_wire.accepting import close_accepting
from dledger_wire.played import Client

Code = DLedgerResponseCode
IDENTITY = "dev-flights"


class Identity:
    """The identity of a group that has one."""

    value = IDENTITY

    def is_strange(self, identity: str) -> bool:
        return identity != IDENTITY


class Leader:
    """n1's port: keeps the requests, and answers them if it is to."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.answers = True
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            for command in decoder.feed(data):
                self.requests.put_nowait(command)
                if self.answers:
                    self.answer(command)

    def answer(self, command: RemotingCommand) -> None:
        index = int(requests.AppendEntryRequest.from_json(command.body).body)
        answer = requests.AppendEntryResponse(group="g", leader_id="n1", index=index)
        self._writers[-1].write(frames.encode_responses([(command.opaque, answer.to_json())]))

    def go_away(self) -> None:
        for writer in self._writers:
            writer.write(GO_AWAY_FRAME)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    played = Leader()
    server = await asyncio.start_server(played.serve, "127.0.0.1", 0)
    played.port = server.sockets[0].getsockname()[1]
    yield played
    await close_accepting(server)
    played.cut()


def follower(port: int, **settings: Any) -> PassedOn:
    """Return the part of n0 that passes on; n0 follows n1."""
    core = SimpleNamespace(leader_id="n1", leads=False, term=3)
    return PassedOn(settings_of(port, **settings), cast("Any", core), Identity())


def settings_of(port: int, **settings: Any) -> NodeSettings:
    """Return the settings of n0, whose leader n1 has this port."""
    peers = {"n0": "127.0.0.1:1", "n1": f"127.0.0.1:{port}"}
    return NodeSettings(group="g", self_id="n0", peers=peers, store_base_dir="unused", **settings)


def pass_on(service: PassedOn, client: Client, *numbers: int) -> None:
    for number in numbers:
        service.pass_on(AppendCall(client, number, b"%d" % number))


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not met():  # noqa: ASYNC110 - the client has no event to wait for
            await asyncio.sleep(0.001)


async def test_each_append_gets_its_own_answer_of_the_leader(leader: Leader) -> None:
    service, client = follower(leader.port), Client()

    pass_on(service, client, *range(100))
    await until(lambda: len(client.answers) == 100)

    assert [answer.index for answer in client.answers] == list(range(100))
    assert all(answer.leader_id == "n1" for answer in client.answers)
    service.give_up()


async def test_a_request_is_passed_on_once_and_names_the_identity(leader: Leader) -> None:
    service, client = follower(leader.port), Client()

    pass_on(service, client, 7)
    passed = await leader.requests.get()

    assert passed.flag == passing_on.PASSED_ON_FLAG | TAKES_GO_AWAY_FLAG
    assert passed.ext_fields == {passing_on.GROUP_IDENTITY_FIELD: IDENTITY}
    assert requests.AppendEntryRequest.from_json(passed.body).remote_id == "n1"
    assert not service.is_foreign(passed)
    assert service.is_foreign(RemotingCommand(code=passed.code, opaque=1, flag=passed.flag))
    service.give_up()


async def test_an_append_is_refused_if_the_leader_cannot_be_reached() -> None:
    service, client = follower(1), Client()

    pass_on(service, client, 1, 2)
    await until(lambda: len(client.answers) == 2)

    told = {(answer.code, answer.leader_id) for answer in client.answers}
    assert told == {(Code.NOT_LEADER, None)}, "so a client of the Service tries again"
    assert client.writes == 1
    assert service.next_deadline_s == float("inf")


async def test_the_outcome_is_unknown_if_the_leader_is_lost_before_it_answers(
    leader: Leader,
) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()

    pass_on(service, client, 1)
    await leader.requests.get()
    leader.cut()
    await until(lambda: bool(client.answers))

    assert client.answers[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT


async def test_an_append_that_a_stopping_leader_has_not_read_is_refused(leader: Leader) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()

    pass_on(service, client, 1, 2)
    leader.answer(await leader.requests.get())
    leader.go_away()
    await until(lambda: len(client.answers) == 2)

    assert [answer.code for answer in client.answers] == [Code.SUCCESS, Code.NOT_LEADER]
    assert client.answers[1].leader_id is None


async def test_a_member_that_stops_waits_for_the_leaders_answers(leader: Leader) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()
    pass_on(service, client, 1)
    passed = await leader.requests.get()

    drained = asyncio.ensure_future(service.drained())
    await asyncio.sleep(0)
    assert service.leader_id is None, "a member that stops passes nothing on"
    assert not drained.done()

    leader.answer(passed)
    await asyncio.wait_for(drained, 10)
    assert [answer.index for answer in client.answers] == [1]
    service.give_up()


async def test_a_member_that_stops_does_not_wait_for_a_leader_that_is_lost(leader: Leader) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()
    pass_on(service, client, 1)
    await leader.requests.get()

    drained = asyncio.ensure_future(service.drained())
    leader.cut()
    await asyncio.wait_for(drained, 10)

    assert client.answers[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT


async def test_the_outcome_is_unknown_if_the_leader_answers_too_late(leader: Leader) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()

    pass_on(service, client, 1)
    await leader.requests.get()
    service.expire(service.next_deadline_s - 0.001)
    assert not client.answers
    service.expire(service.next_deadline_s)

    assert client.answers[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT


async def test_appends_above_the_bound_are_refused(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_on, "REQUESTS_MAX", 2)
    leader.answers = False
    service, client = follower(leader.port), Client()

    pass_on(service, client, 1, 2, 3)

    assert [answer.code for answer in client.answers] == [Code.LEADER_PENDING_FULL]
    service.give_up()
    assert len(client.answers) == 3


async def test_bytes_above_the_bound_are_refused_unless_nothing_else_waits(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_on, "BYTES_MAX", 1)
    leader.answers = False
    service, client = follower(leader.port), Client()

    pass_on(service, client, 1, 2)

    assert [answer.code for answer in client.answers] == [Code.LEADER_PENDING_FULL]
    service.give_up()


async def test_one_address_gets_no_more_places_at_a_follower_than_at_the_leader(
    leader: Leader,
) -> None:
    leader.answers = False
    service, client = follower(leader.port, client_pending_appends_max=2), Client()
    other = Client()
    other.address = "198.18.0.2"

    pass_on(service, client, 1, 2, 3)
    pass_on(service, other, 4)

    assert [answer.code for answer in client.answers] == [Code.LEADER_PENDING_FULL]
    assert not other.answers
    service.give_up()
    assert len(client.answers) == 3


async def test_a_batch_larger_than_the_limit_of_an_address_is_refused_for_good(
    leader: Leader,
) -> None:
    """The client then sends its bodies one by one."""
    service, client = follower(leader.port, client_pending_appends_max=2), Client()

    service.pass_on(BatchCall(client, 1, [b"a", b"b", b"c"]))

    assert [answer.code for answer in client.answers] == [Code.UNSUPPORTED]


async def test_limits_of_a_follower_may_change_while_appends_wait_for_the_leader(
    leader: Leader,
) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()
    pass_on(service, client, 1, 2)

    service.take_settings(settings_of(leader.port, client_pending_appends_max=3))
    pass_on(service, client, 3, 4)
    assert [answer.code for answer in client.answers] == [Code.LEADER_PENDING_FULL]

    service.take_settings(settings_of(leader.port, client_frame_bytes_max=1 << 16))
    service.pass_on(AppendCall(client, 5, bytes(1 << 16)))
    assert client.answers[1].code is Code.NOT_LEADER
    service.give_up()
    assert len(client.answers) == 5


@pytest.mark.parametrize("frame_bytes_max", [1 << 16, frames.FRAME_BYTES_MAX])
async def test_a_frame_that_the_leader_would_not_take_is_refused(
    leader: Leader, frame_bytes_max: int
) -> None:
    service, client = follower(leader.port, client_frame_bytes_max=frame_bytes_max), Client()

    service.pass_on(AppendCall(client, 1, bytes(frame_bytes_max)))

    assert client.answers[0].code is Code.NOT_LEADER


async def test_a_member_that_stops_answers_all_and_passes_nothing_on(leader: Leader) -> None:
    leader.answers = False
    service, client = follower(leader.port), Client()
    pass_on(service, client, 1)
    await leader.requests.get()

    service.give_up()

    assert client.answers[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT
    assert service.leader_id is None


async def test_a_new_leader_gets_later_appends_on_a_connection_of_its_own(leader: Leader) -> None:
    service, client = follower(leader.port), Client()
    pass_on(service, client, 1)
    await until(lambda: len(client.answers) == 1)

    service._addresses["n0"] = f"127.0.0.1:{leader.port}"
    cast("Any", service._core).leader_id = "n0"
    pass_on(service, client, 2)
    await until(lambda: len(client.answers) == 2)

    assert list(service._links) == ["n0"]
    service.give_up()
