"""No member says that a queue ends before a message that was acknowledged when it was asked."""

import itertools
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, number
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode
LATER = 50
FAR_FUTURE_MS = 1 << 42


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_was_asleep_names_the_end_that_was_acknowledged_meanwhile(
    tmp_path: Path, leads: bool
) -> None:
    """A new group of consumers would begin there, and get old messages or none."""
    queue = {"topic": "t", "queueId": "0"}
    fresh = {"topic": "fresh", "queueId": "0"}
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        asleep = leader if leads else next(each for each in group.peers if each != leader)
        others = [member for member in group.peers if member != asleep]
        with BrokerClient(group.broker_addresses[asleep]) as client:
            client.send("t", b"first")
            client.wait_until_visible("t", 1)
            group.freeze(asleep)
            new = wait_for(
                lambda: next((one for one in others if group.status(one).master), None), "a leader"
            )
            with BrokerClient(group.broker_addresses[new]) as other:
                for n in range(LATER):
                    assert other.send("t", b"%d" % n).code == ResponseCode.SUCCESS
                assert other.send("fresh").code == ResponseCode.SUCCESS
            questions = [
                (Code.GET_MAX_OFFSET, queue),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": str(FAR_FUTURE_MS)}),
                (Code.GET_MAX_OFFSET, fresh),
                (Code.GET_MIN_OFFSET, fresh),
            ]
            asked = [client.begin(*question) for question in questions]
            group.thaw(asleep)
            first = [client.answer(request) for request in asked]
            answers = [
                wait_for_answer(client, answer, *question)
                for answer, question in zip(first, questions, strict=True)
            ]

    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 4, answers
    assert [number(answer, "offset") for answer in answers] == [LATER + 1, LATER + 1, 1, 0]


def wait_for_answer(
    client: BrokerClient, first: RemotingCommand, code: int, ext: dict[str, str]
) -> RemotingCommand:
    """Return the answer to a question, which is asked again if no proof was found in time."""
    answers = itertools.chain([first], iter(lambda: client.ask(code, ext), None))
    return wait_for(
        lambda: answer if (answer := next(answers)).code != ResponseCode.SYSTEM_ERROR else None,
        "an answer with a proof",
    )


def test_without_a_quorum_no_member_names_an_end(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            client.send("t", b"first")
            client.wait_until_visible("t", 1)
            for member in group.peers:
                if member != leader:
                    group.freeze(member)
            answer = client.ask(Code.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"})
        for member in group.peers:
            if member != leader:
                group.thaw(member)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no leader confirmed" in (answer.remark or "")
