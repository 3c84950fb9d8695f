"""A leader that was deposed and has not noticed gives out no offset, and moves no consumer."""

from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, number, pull_ext, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode
LATER = 50


def send_through_another(group: BrokerGroup, leader: str) -> None:
    """Let the others elect a leader, and send messages that the old one does not know."""
    others = [member for member in group.peers if member != leader]
    new = wait_for(
        lambda: next((one for one in others if group.status(one).master), None), "a new leader"
    )
    with BrokerClient(group.broker_addresses[new]) as client:
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
