"""A canary in the log of a broker: no message, no offset, and no change of the state."""

from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, number
from dledger_formats.protocol.canary import APPEND_CANARY, AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import AppendEntryResponse
from dledger_formats.rocketmq.codes import RequestCode
from dledger_group.wire import ask
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group


def append_canary(group: NodeGroup, member: str) -> int:
    body = AppendCanaryRequest(group="g", remote_id=member).to_json()
    answer = ask(group, member, RemotingCommand(code=APPEND_CANARY, opaque=1, body=body))
    response = AppendEntryResponse.from_json(answer.body)
    assert response.code is DLedgerResponseCode.SUCCESS
    return response.index


def test_canaries_between_messages_take_no_offset(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, 1) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            offsets = []
            for body in (b"a", b"b", b"c"):
                append_canary(group, leader)
                offsets.append(number(client.send("topic", body), "queueOffset"))
            last = append_canary(group, leader)
        assert offsets == [0, 1, 2]

        group.stop(leader)
        group.start(leader)
        group.wait_until_up(leader)
        assert group.master() == leader
        with BrokerClient(group.broker_addresses[leader]) as client:
            ext = {"topic": "topic", "queueId": "0"}
            assert number(client.ask(RequestCode.GET_MAX_OFFSET, ext), "offset") == 3
            assert number(client.send("topic", b"d"), "queueOffset") == 3
        assert append_canary(group, leader) > last
