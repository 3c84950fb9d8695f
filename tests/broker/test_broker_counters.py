"""The values of the broker's counters and gauges, before and after requests that are known."""

from collections.abc import Iterator

import pytest

from dledger_broker_client.client import BrokerClient, bodies, pull_ext, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.names import RuntimeInfo
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

MESSAGES = 20
RUNTIME = {
    "putMessageTimesTotal": "messages_stored_total",
    "putMessageSizeTotal": "bytes_stored_total",
    "getTransferredMsgNumTotal": "messages_pulled_total",
    "getTransferredBytesTotal": "bytes_pulled_total",
}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """A group whose leader stays for some seconds without its followers."""
    patient = {"heartbeat_interval_ms": 250, "election_timeout_ms": 4_000}
    with BrokerGroup(tmp_path_factory.mktemp("brokers"), **patient) as running:
        yield running


def values_of(group: BrokerGroup, member: str) -> dict[str, int]:
    """Return the broker's counters and gauges without labels."""
    page = group.get(member, "/metrics")[1].decode()
    rows = [line.split() for line in page.splitlines() if line.startswith("dledger_broker_")]
    return {
        name.removeprefix("dledger_broker_"): int(float(value))
        for name, value in rows
        if "{" not in name
    }


def test_messages_and_their_bytes_are_counted_as_they_are_stored_and_pulled(
    group: BrokerGroup,
) -> None:
    leader = group.master()
    before = values_of(group, leader)
    with BrokerClient(group.broker_addresses[leader]) as client:
        for n in range(MESSAGES):
            assert client.send("counted", b"%03d" % n * 100).code == ResponseCode.SUCCESS
        client.wait_until_visible("counted", MESSAGES)
        already = values_of(group, leader)
        pulled = client.pull("counted", 0)
        after = values_of(group, leader)
        runtime = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)

    assert len(bodies(pulled)) == MESSAGES
    assert after["messages_stored_total"] - before["messages_stored_total"] == MESSAGES
    assert after["messages_pulled_total"] - already["messages_pulled_total"] == MESSAGES
    assert after["bytes_pulled_total"] - already["bytes_pulled_total"] == len(pulled.body)
    assert after["bytes_stored_total"] - before["bytes_stored_total"] == len(pulled.body)
    table = RuntimeInfo.from_json(runtime.body).table
    assert {name: int(table[name]) for name in RUNTIME} == {
        name: after[counter] for name, counter in RUNTIME.items()
    }


def test_a_send_is_timed_at_the_member_that_its_client_is_connected_to(
    group: BrokerGroup,
) -> None:
    leader = group.master()
    follower = next(member for member in group.peers if member != leader)
    before = {member: values_of(group, member)["send_seconds_count"] for member in group.peers}
    for member, count in ((leader, 2), (follower, 3)):
        with BrokerClient(group.broker_addresses[member]) as client:
            for _ in range(count):
                assert client.send("timed").code == ResponseCode.SUCCESS
    after = {member: values_of(group, member)["send_seconds_count"] for member in group.peers}

    timed = {member: after[member] - before[member] for member in group.peers}
    assert timed == dict.fromkeys(group.peers, 0) | {leader: 2, follower: 3}


def test_a_pull_is_timed_if_it_finds_messages_at_once(group: BrokerGroup) -> None:
    leader = group.master()
    with BrokerClient(group.broker_addresses[leader]) as client:
        client.send("pulled")
        client.wait_until_visible("pulled", 1)
        before = values_of(group, leader)["pull_seconds_count"]
        client.pull("pulled", 0)
        held = client.begin(
            RequestCode.PULL_MESSAGE,
            pull_ext("pulled", 1, sysFlag="6", suspendTimeoutMillis="20000"),
        )
        client.send("pulled")
        client.answer(held)

    assert values_of(group, leader)["pull_seconds_count"] - before == 1


def test_what_waits_is_shown_while_it_waits(group: BrokerGroup) -> None:
    leader = group.master()
    follower, other = (member for member in group.peers if member != leader)

    def shows(member: str, name: str, value: int) -> None:
        wait_for(lambda: values_of(group, member)[name] == value, f"{member}: {name} is {value}")

    with (
        BrokerClient(group.broker_addresses[leader]) as client,
        BrokerClient(group.broker_addresses[follower]) as passed_on,
    ):
        assert client.send("waited").code == ResponseCode.SUCCESS
        waits = pull_ext("waited", 1, sysFlag="6", suspendTimeoutMillis="20000")
        held = client.begin(RequestCode.PULL_MESSAGE, waits)
        shows(leader, "held_pulls", 1)
        group.freeze(other)
        group.freeze(follower)
        stored = client.begin(RequestCode.SEND_MESSAGE_V2, send_ext("waited"), b"body")
        shows(leader, "pending_messages", 1)
        group.thaw(follower)
        group.thaw(other)
        assert client.answer(stored).code == ResponseCode.SUCCESS
        assert client.answer(held).code == ResponseCode.SUCCESS
        shows(leader, "pending_messages", 0)
        shows(leader, "held_pulls", 0)

        group.freeze(leader)
        sent = passed_on.begin(RequestCode.SEND_MESSAGE_V2, send_ext("waited"), b"body")
        shows(follower, "requests_waiting", 1)
        group.thaw(leader)
        passed_on.answer(sent)
        shows(follower, "requests_waiting", 0)
