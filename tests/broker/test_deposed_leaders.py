"""A leader that was deposed and has not noticed gives out no offset, and moves no consumer."""

import contextlib
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, pull_ext, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode
LATER = 50
NEVER_ZERO = {"setZeroIfNotFound": "false"}


def offset_ext(name: str) -> dict[str, str]:
    return {"consumerGroup": name, "topic": "t", "queueId": "0"}


def commit(client: BrokerClient, name: str, offset: int) -> int:
    """Commit an offset of a consumer group; return the code of the answer."""
    ext = offset_ext(name) | {"commitOffset": str(offset)}
    return client.ask(Code.UPDATE_CONSUMER_OFFSET, ext).code


def new_leader(group: BrokerGroup, leader: str) -> str:
    """Let the others elect a leader, and return it."""
    others = [member for member in group.peers if member != leader]
    return wait_for(
        lambda: next((one for one in others if group.status(one).master), None), "a new leader"
    )


def send_through_another(group: BrokerGroup, leader: str) -> None:
    """Let the others elect a leader, and send messages that the old one does not know."""
    with BrokerClient(group.broker_addresses[new_leader(group, leader)]) as client:
        for n in range(LATER):
            assert client.send("t", b"%d" % n).code == ResponseCode.SUCCESS


def test_a_leader_that_wakes_after_its_successor_moves_no_consumer_back(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            client.send("t", b"first")
            client.wait_until_visible("t", 1)
            group.freeze(leader)
            send_through_another(group, leader)
            held = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}
            pulls = [
                client.begin(Code.PULL_MESSAGE, pull_ext("t", offset, **held))
                for offset in range(2, LATER + 1)
            ]
            group.thaw(leader)
            answers = [client.answer(pull) for pull in pulls]

    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert [bodies(answer)[0] for answer in answers] == [
        b"%d" % (n - 1) for n in range(2, LATER + 1)
    ]


def test_a_leader_that_wakes_after_its_successor_gives_no_offset_out_twice(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            client.send("t", b"first")
            group.freeze(leader)
            send_through_another(group, leader)
            sends = [
                client.begin(Code.SEND_MESSAGE_V2, send_ext("t"), b"late %d" % n) for n in range(10)
            ]
            group.thaw(leader)
            answers = [client.answer(send) for send in sends]
            stored = [
                number(answer, "queueOffset")
                for answer in answers
                if answer.code == ResponseCode.SUCCESS
            ]
            client.wait_until_visible("t", 1 + LATER + len(stored))

    assert {answer.code for answer in answers} <= {
        ResponseCode.SUCCESS,  # passed on to the successor
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
    }
    assert stored == sorted({*stored})
    assert not stored or stored[0] > LATER


def test_a_leader_that_wakes_after_its_successor_sends_no_consumer_group_back(
    tmp_path: Path,
) -> None:
    """It named an older offset, or none, so that a new consumer skipped messages."""
    with BrokerGroup(tmp_path) as group, contextlib.ExitStack() as closing:
        leader = group.master()
        clients = [
            closing.enter_context(BrokerClient(group.broker_addresses[leader])) for _ in range(10)
        ]
        for _ in range(3):
            clients[0].send("t")
        assert commit(clients[0], "old", 1) == ResponseCode.SUCCESS
        group.freeze(leader)
        # The kernel reports sockets in the order in which they got data. So the leader reads these
        # before those of its peers, also what is sent later.
        for client in clients:
            client.begin(Code.GET_BROKER_CLUSTER_INFO)
        with BrokerClient(group.broker_addresses[new_leader(group, leader)]) as other:
            assert commit(other, "old", 3) == ResponseCode.SUCCESS
            assert commit(other, "new", 2) == ResponseCode.SUCCESS
        queries = [
            (client, client.begin(Code.QUERY_CONSUMER_OFFSET, offset_ext(name) | NEVER_ZERO))
            for client in clients
            for name in ("old", "new")
        ]
        group.thaw(leader)
        answers = [client.answer(query) for client, query in queries]

    refused = ResponseCode.SERVICE_NOT_AVAILABLE  # the successor did not answer in time
    assert {answer.code for answer in answers} <= {ResponseCode.SUCCESS, refused}
    named = [None if each.code == refused else number(each, "offset") for each in answers]
    assert set(named[::2]) <= {3, None}
    assert set(named[1::2]) <= {2, None}
