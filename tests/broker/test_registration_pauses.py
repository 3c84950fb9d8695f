"""How soon a member tries again at a name server that does not register it."""

import asyncio
from collections.abc import Iterator

import pytest

from dledger_broker.registration import kept_record
from dledger_broker.registration.kept_record import REPEAT_S, UNREACHABLE_S, Backoff
from dledger_broker_client.name_server import NameServer
from dledger_broker_client.registering import Registering
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import ResponseCode
from tools.groups.node_group import next_port


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


def accepting(request: RemotingCommand) -> bytes:
    return encode_answer(request.opaque, ResponseCode.SUCCESS)


def refusing(request: RemotingCommand) -> bytes:
    return encode_answer(request.opaque, ResponseCode.SYSTEM_ERROR, remark="crc32 not match")


def test_the_pause_doubles_with_each_failure_up_to_thirty_seconds() -> None:
    backoff = Backoff()
    assert [backoff.failed() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]

    backoff.reset()
    assert [backoff.failed() for _ in range(2)] == [0.5, 1]


def test_the_pause_stays_short_while_a_name_server_accepts_no_connections() -> None:
    backoff = Backoff()
    assert [backoff.failed(UNREACHABLE_S) for _ in range(6)] == [0.5, 1, 2, 4, 5, 5]
    assert [backoff.failed(REPEAT_S) for _ in range(3)] == [5, 10, 20]


def test_a_name_server_that_was_away_for_long_is_found_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_record, "UNREACHABLE_S", 0.05)
    monkeypatch.setattr(kept_record, "RETRY_S", 30.0)
    port = next_port()

    async def play() -> None:
        async with Registering(f"127.0.0.1:{port}") as member:
            await member.until(lambda: bool(member.counters.registration_problems), "it is away")
            server = NameServer(port)
            await member.until(lambda: bool(server.requests), "it is found")
            server.close()

    asyncio.run(play())


def test_a_name_server_that_refuses_is_asked_ever_more_seldom_until_something_changes(
    name_server: NameServer,
) -> None:
    name_server.answer = refusing

    async def play() -> None:
        async with Registering(name_server.address) as member:
            await member.until(lambda: len(name_server.requests) >= 4, "it has tried four times")
            times_s = name_server.times_s
            assert times_s[3] - times_s[0] >= 3.0, "0.5 s, 1 s and 2 s, less what a request took"
            name_server.answer = accepting
            member.change()
            await member.until_registered()
            assert times_s[4] - times_s[3] < 3.5, "the next pause was 4 s"

    asyncio.run(play())


def test_a_name_server_that_answers_and_then_closes_is_asked_ever_more_seldom(
    name_server: NameServer,
) -> None:
    name_server.closes = True

    async def play() -> None:
        async with Registering(name_server.address) as member:
            await member.until(lambda: len(name_server.requests) >= 4, "it has tried four times")

    asyncio.run(play())
    times_s = name_server.times_s
    assert times_s[3] - times_s[0] >= 3.0, "0.5 s, 1 s and 2 s, less what a request took"


def test_a_connection_that_ends_after_a_long_time_is_replaced_at_once(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routes lack this record meanwhile, perhaps that of the master."""
    monkeypatch.setattr(kept_record, "STEADY_S", 0.0)
    monkeypatch.setattr(kept_record, "RETRY_S", 30.0)
    name_server.closes = True

    async def play() -> None:
        async with Registering(name_server.address) as member:
            await member.until(lambda: len(name_server.requests) >= 2, "it is registered again")
            assert not member.counters.registration_problems

    asyncio.run(play())
