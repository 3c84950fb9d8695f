"""A broker near its bounds: what one client asks for ends no member, and holds up no other."""

import time
from pathlib import Path

from dledger_broker_client.client import BrokerClient, consumer, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.turns import longer_turns


def topic(name: str, queues: int) -> dict[str, str]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


def test_topics_beyond_the_bound_that_are_asked_for_at_once_end_no_member(tmp_path: Path) -> None:
    """The second setting of `big` hid what the first one needs, and a message whose queue the state
    refuses was written. No member could go on past it, now or after a restart.
    """
    with BrokerGroup(tmp_path, 1) as group:
        group.master()
        with BrokerClient(group.broker_addresses["n0"]) as client:
            assert client.send("warm").code == ResponseCode.SUCCESS
            update = int(RequestCode.UPDATE_AND_CREATE_TOPIC)
            sends = [
                (int(RequestCode.SEND_MESSAGE_V2), send_ext(f"v{number}", d="8", e="7"), b"x")
                for number in range(6)
            ]
            begun = client.begin_all(
                (update, topic("big", 99_970), b""), (update, topic("big", 1), b""), *sends
            )
            codes = [client.answer(opaque).code for opaque in begun]

            assert ResponseCode.TOPIC_NOT_EXIST in codes[2:], "there is no room for all of them"
            assert client.send("warm").code == ResponseCode.SUCCESS
        group.kill("n0")
        group.start("n0")
        group.master()
        with BrokerClient(group.broker_addresses["n0"]) as client:
            assert client.send("warm").code == ResponseCode.SUCCESS


def test_a_client_joins_hundreds_of_groups_with_one_heartbeat(tmp_path: Path) -> None:
    """Joining all at once took more than a second in one turn of the event loop, and the draft was
    then too late to be written.
    """
    groups = [consumer(f"g{number}", "t") for number in range(700)]
    with BrokerGroup(tmp_path, 1) as group:
        group.master()
        address = group.broker_addresses["n0"]
        with BrokerClient(address) as client, BrokerClient(address) as other:
            assert other.send("t").code == ResponseCode.SUCCESS
            deadline_s = time.monotonic() + 30
            answer = client.beat("c1", *groups)
            while answer.code != ResponseCode.SUCCESS and time.monotonic() < deadline_s:
                answer = client.beat("c1", *groups)  # as clients do

            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert client.client_ids("g0") == client.client_ids("g699") == ["c1"]
            assert other.send("t").code == ResponseCode.SUCCESS
        assert longer_turns(group, "n0", 0.25) == 0
