"""What a member tells name servers, and name servers that are down, slow or wrong."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.registration import register_broker
from dledger_broker.registration.kept_record import LAST_ANSWER_S, KeptRecord
from dledger_broker.registration.register_broker import Standing
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.tables import Tables, TableVersion
from dledger_broker_client.client import BrokerClient
from dledger_broker_client.name_server import NameServer
from dledger_broker_client.registering import GROUP_ADDRESS, MEMBERS, SETTINGS, Registering
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.names import RegisterBroker, RegisterBrokerFields, body_checksum
from dledger_formats.settings import SettingsError
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import next_port
from tools.groups.waiting import wait_for

OWN = MEMBERS["n1"]
GOLDEN = Path(__file__).parents[1] / "formats" / "golden" / "rocketmq-frames.jsonl"


def registered(standing: Standing) -> RemotingCommand:
    """Return the registration of a broker without topics of its own."""
    tables = BrokerState().tables
    tables.topics_version = standing.topics
    body = register_broker.body(SETTINGS, standing, tables)
    [command] = FrameDecoder().feed(register_broker.frame(SETTINGS, standing, body, 7))
    return command


def test_a_registration_has_the_fields_that_javas_broker_sends() -> None:
    golden = [
        command
        for line in GOLDEN.read_text().splitlines()
        if json.loads(line)["name"] == "register-broker-id0-ok"
        for command in FrameDecoder().feed(bytes.fromhex(json.loads(line)["hex"]))
        if not command.is_response and "enableActingMaster" in (command.ext_fields or {})
    ]
    assert golden

    ours = registered(Standing(0, MEMBERS["n1"], 5, TableVersion(3, 4)))

    for theirs in golden:
        assert (theirs.ext_fields or {}).keys() == (ours.ext_fields or {}).keys()
        wrapper = json.loads(theirs.body)["topicConfigSerializeWrapper"]
        assert json.loads(ours.body)["topicConfigSerializeWrapper"].keys() <= wrapper.keys()


def test_only_the_master_brings_topics_to_a_name_server_that_has_none() -> None:
    """One of 5.x takes them from any broker with this field; routes then have no master."""
    master, other = (registered(Standing(id_, OWN, 5, TableVersion())) for id_ in (0, 2))

    assert RegisterBrokerFields.from_ext(master.ext_fields).enable_acting_master is False
    assert "enableActingMaster" not in (other.ext_fields or {})


def test_a_registration_says_which_leader_it_comes_from() -> None:
    command = registered(Standing(0, MEMBERS["n1"], 5, TableVersion(3, 4)))

    fields = RegisterBrokerFields.from_ext(command.ext_fields)
    version = RegisterBroker.from_json(command.body).topic_config_serialize_wrapper.data_version
    assert (fields.broker_id, fields.broker_addr) == (0, "127.0.0.1:2")
    assert fields.body_crc32 == body_checksum(command.body)
    assert (version.counter, version.timestamp, version.state_version) == (3, 4, 5)


def test_the_first_registration_has_more_than_one_topic() -> None:
    """A name server refuses one with a single topic."""
    body = register_broker.body(
        SETTINGS, Standing(2, MEMBERS["n1"], 1, TableVersion()), BrokerState().tables
    )

    assert len(RegisterBroker.from_json(body).topic_config_serialize_wrapper.topic_config_table) > 1


@pytest.fixture
def name_server() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


def is_registered(group: BrokerGroup, address: str) -> bool:
    page = group.get("n0", "/metrics")[1].decode()
    return f'dledger_broker_registered{{name_server="{address}"}} 1.0' in page


@pytest.mark.group
def test_a_new_topic_is_told_at_once_and_the_end_of_the_member_ends_the_connection(
    tmp_path: Path, name_server: NameServer
) -> None:
    with BrokerGroup(tmp_path, 1, registered_at=name_server.address) as group:
        group.master()
        wait_for(lambda: is_registered(group, name_server.address), "it is registered")
        with BrokerClient(group.broker_addresses["n0"]) as client:
            client.send("new")
        wait_for(lambda: "new" in name_server.topics[-1], "the topic is registered")
        assert name_server.open == 1
        group.stop("n0")
        wait_for(lambda: name_server.open == 0, "the connection is closed")

    last = name_server.requests[-1]
    assert (last.broker_id, last.broker_addr) == (0, group.broker_addresses["n0"])


def silent(_: RemotingCommand) -> bytes:
    return b""


def refusing(request: RemotingCommand) -> bytes:
    return encode_answer(request.opaque, ResponseCode.SYSTEM_ERROR, remark="crc32 not match")


def broken(_: RemotingCommand) -> bytes:
    return b"\xff" * 64


def asking(request: RemotingCommand) -> bytes:
    """Answer with a request of its own and with the answer to another request, then rightly."""
    strange = RemotingCommand(code=40, opaque=request.opaque + 1000, ext_fields={})
    another, right = encode_answer(request.opaque + 1, 1), encode_answer(request.opaque, 0)
    return frames.encode(strange) + another + right


@pytest.mark.group
@pytest.mark.parametrize("answer", [silent, refusing, broken])
def test_a_name_server_that_does_not_do_its_work_disturbs_nobody(
    tmp_path: Path, name_server: NameServer, answer: Any
) -> None:
    name_server.answer = answer
    other = NameServer()
    servers = f"{name_server.address};127.0.0.1:{next_port()};{other.address}"
    with BrokerGroup(tmp_path, 1, registered_at=servers) as group:
        group.master()
        with BrokerClient(group.broker_addresses["n0"]) as client:
            assert client.send("served").code == ResponseCode.SUCCESS
        wait_for(lambda: is_registered(group, other.address), "it is registered at the other one")
        wait_for(lambda: len(name_server.requests) > 0, "it asked the first one, too")
        assert not is_registered(group, name_server.address)
        name_server.answer = asking
        if answer is not silent:  # that one has 10 s for its answer
            wait_for(lambda: is_registered(group, name_server.address), "it tries again")
    other.close()


@pytest.mark.group
def test_a_member_that_is_cut_off_lets_go_of_the_address_of_the_group(
    tmp_path: Path, name_server: NameServer
) -> None:
    """Else a name server would forget the address of a healthy group when this member dies."""
    with BrokerGroup(tmp_path, registered_at=name_server.address, shares_port=True) as group:
        leader = group.master()
        alone = next(member for member in group.peers if member != leader)

        def of_the_group() -> int:
            return sum(
                request.broker_addr == group.group_address for request in name_server.requests
            )

        wait_for(lambda: len(name_server.requests) > len(group.peers), "all are registered")
        others = [member for member in group.peers if member != alone]
        for member in others:
            group.freeze(member)
        before = of_the_group()
        wait_for(lambda: of_the_group() > before, "it registers the group's address")
        wait_for(lambda: group.status(alone).leader_id is None, "it knows that there is no leader")
        while_alone = of_the_group()
        for member in others:
            group.thaw(member)
        wait_for(lambda: of_the_group() > while_alone, "the leader takes the address back")


def test_a_record_that_was_not_wanted_for_a_moment_is_registered_all_the_same(
    name_server: NameServer,
) -> None:
    """An attempt may come after the election of a leader and before it has proved itself, and no
    tick between the two.
    """
    name_server.closes = True

    async def play() -> None:
        async with Registering(name_server.address) as member:
            member.become_keeper()
            wanted, member.group = member.group, None
            # Both records are tried at the same times, so that of the group is given up by now.
            await member.until(lambda: name_server.addresses.count(OWN) >= 3, "two further tries")
            name_server.closes, member.group = False, wanted
            before = name_server.addresses.count(GROUP_ADDRESS)

            member.servers.tick()

            await member.until(
                lambda: name_server.addresses.count(GROUP_ADDRESS) > before, "it is registered"
            )

    asyncio.run(play())


@pytest.mark.parametrize("answers", [True, False])
def test_a_connection_ends_once_the_registration_under_way_is_answered(
    name_server: NameServer, answers: bool
) -> None:
    """A name server that handles it after the end of the connection keeps a dead member."""
    begun, may_answer = threading.Event(), threading.Event()

    def late(request: RemotingCommand) -> bytes:
        begun.set()
        may_answer.wait(10)
        return encode_answer(request.opaque, 0)

    async def play() -> float:
        name_server.answer = late
        member = Registering(name_server.address)
        async with member:
            await asyncio.to_thread(begun.wait)
        closing = asyncio.create_task(member.servers.closed())
        began_s = time.monotonic()
        done, _ = await asyncio.wait({closing}, timeout=LAST_ANSWER_S / 4)
        assert not done, "the answer may still come"
        if answers:
            may_answer.set()
        await closing
        return time.monotonic() - began_s

    took_s = asyncio.run(play())
    may_answer.set()
    assert (took_s < LAST_ANSWER_S) == answers
    wait_for(lambda: name_server.open == 0, "the connection is closed")


def test_all_name_servers_are_told_with_one_body_of_each_table(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make = register_broker.body

    def counted(settings: BrokerSettings, standing: Standing, tables: Tables) -> bytes:
        made.append(standing.term)
        return make(settings, standing, tables)

    monkeypatch.setattr(register_broker, "body", counted)
    others = [NameServer(), NameServer()]

    async def play() -> None:
        async with Registering(*(each.address for each in (name_server, *others))) as member:
            await member.until_registered()
            member.change()
            for server in (name_server, *others):
                await member.until(lambda at=server: at.terms[-1] == 2, "it knows the change")  # type: ignore[misc]

    asyncio.run(play())
    for other in others:
        other.close()
    assert made == [1, 2]


def test_an_unexpected_error_at_one_name_server_ends_no_registration(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = NameServer()
    errors = [KeyError("unexpected")]
    make = register_broker.frame

    def failing(settings: BrokerSettings, standing: Standing, topics: bytes, opaque: int) -> bytes:
        if errors:
            raise errors.pop()
        return make(settings, standing, topics, opaque)

    monkeypatch.setattr(register_broker, "frame", failing)

    async def play() -> None:
        async with Registering(name_server.address, other.address) as member:
            await member.until_registered()

    asyncio.run(play())
    other.close()
    assert not errors
    assert "KeyError: 'unexpected'" in caplog.text


def test_the_end_of_a_registration_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def end(_: KeptRecord) -> None:
        raise KeyError("the end")

    monkeypatch.setattr(KeptRecord, "run", end)

    async def play() -> None:
        async with Registering("127.0.0.1:1") as member:
            await member.until(lambda: "the end" in caplog.text, "it is logged")

    asyncio.run(play())
    assert "restart the member" in caplog.text


@pytest.mark.parametrize("text", ["host", "host:", ":9876", "host:0", "a:1,b:2", "a:٣"])
def test_a_list_of_name_servers_that_cannot_be_read_is_refused(text: str) -> None:
    environment = SETTINGS.node.to_environment() | {
        "DLEDGER_BROKER_ADDRESSES": "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3",
        "DLEDGER_BROKER_NAME_SERVERS": text,
    }
    with pytest.raises(SettingsError, match="the form is HOST:PORT"):
        BrokerSettings.from_environment(environment)
