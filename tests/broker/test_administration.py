"""Administrators create, change and delete topics and consumer groups."""

import json
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, bodies, consumer, number
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.names import RuntimeInfo, TopicRoute
from dledger_formats.rocketmq.offsets import ConsumerOffsets, DelayOffsets
from dledger_formats.rocketmq.requests import FORMS
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dledger_formats.rocketmq.topics import CreateTopicFields, TopicConfig, TopicTable
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Code = RequestCode
Answer = ResponseCode
GOLDEN = Path(__file__).parents[1] / "formats" / "golden" / "rocketmq-frames.jsonl"


def recorded(name: str) -> RemotingCommand:
    """Return a recorded request."""
    for line in GOLDEN.read_text().splitlines():
        frame = json.loads(line)
        if (frame["name"], frame["direction"]) == (name, "request"):
            [command] = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            return command
    raise LookupError(name)


def set_topic(client: BrokerClient, name: str, queues: int = 4, **changed: str) -> RemotingCommand:
    fields = CreateTopicFields(
        topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", default_topic="TBW102", order=False, topic_sys_flag=0,
    )  # fmt: skip
    return client.ask(Code.UPDATE_AND_CREATE_TOPIC, fields.to_ext() | changed)


def delete_topic(client: BrokerClient, topic: str) -> RemotingCommand:
    return client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})


def set_group(client: BrokerClient, group: str, **settings: object) -> RemotingCommand:
    config = SubscriptionGroup(group_name=group, **settings)  # type: ignore[arg-type]
    return client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())


def delete_group(client: BrokerClient, group: str, *, clean: bool) -> RemotingCommand:
    ext = {"groupName": group, "cleanOffset": "true" if clean else "false"}
    return client.ask(Code.DELETE_SUBSCRIPTIONGROUP, ext)


def topics(client: BrokerClient) -> TopicTable:
    return TopicTable.from_json(client.ask(Code.GET_ALL_TOPIC_CONFIG).body)


def groups(client: BrokerClient) -> dict[str, SubscriptionGroup]:
    answer = client.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupTable.from_json(answer.body).subscription_group_table


def commit(client: BrokerClient, group: str, topic: str, offset: int) -> RemotingCommand:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    return client.ask(Code.UPDATE_CONSUMER_OFFSET, ext)


def committed(client: BrokerClient, group: str, topic: str) -> int | None:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
    answer = client.ask(Code.QUERY_CONSUMER_OFFSET, ext)
    return None if answer.code == Answer.QUERY_NOT_FOUND else number(answer, "offset")


@pytest.mark.parametrize(
    "name",
    [
        "create-topic-ok", "create-subscription-group-ok", "sync-topic-config-ok",
        "sync-subscription-group-ok", "sync-consumer-offset-ok", "sync-delay-offset-ok",
        "sync-message-request-mode-ok",
    ],
)  # fmt: skip
def test_a_recorded_request_is_answered_in_its_recorded_form(
    client: BrokerClient, name: str
) -> None:
    request = recorded(name)

    answer = client.ask(request.code, dict(request.ext_fields or {}), request.body)

    assert answer.code == Answer.SUCCESS, answer.remark
    form = FORMS[RequestCode(request.code)].answer_body
    assert form is None or form.from_json(answer.body)


def test_the_recorded_creations_lead_to_the_topic_and_the_group(client: BrokerClient) -> None:
    for name in ("create-topic-ok", "create-subscription-group-ok"):
        request = recorded(name)
        client.ask(request.code, dict(request.ext_fields or {}), request.body)

    topic = topics(client).topic_config_table["Made"]
    answer = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Made"})
    [queues] = TopicRoute.from_json(answer.body).queue_datas

    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (2, 2, 6)
    assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (2, 2, 6)
    sent = json.loads(recorded("create-subscription-group-ok").body)
    assert json.loads(groups(client)["g-made"].to_json()) == sent
    one = client.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g-made"})
    assert json.loads(one.body) == sent


def test_settings_that_are_there_already_change_nothing(client: BrokerClient) -> None:
    set_topic(client, "same")
    set_group(client, "same", retry_max_times=3)
    before = topics(client).data_version

    assert set_topic(client, "same").code == Answer.SUCCESS
    assert set_group(client, "same", retry_max_times=3).code == Answer.SUCCESS

    assert topics(client).data_version == before


def test_a_topic_gets_more_queues_and_keeps_its_messages(client: BrokerClient) -> None:
    set_topic(client, "grown", 1)
    client.send("grown", b"before")
    assert client.send("grown", e="3").code == Answer.INVALID_PARAMETER

    assert set_topic(client, "grown", 4, attributes="+message.type=NORMAL").code == Answer.SUCCESS

    assert client.send("grown", e="3").code == Answer.SUCCESS
    client.wait_until_visible("grown", 1)
    assert bodies(client.pull("grown")) == [b"before"]
    answer = client.ask(Code.GET_TOPIC_CONFIG, {"topic": "grown", "lo": "true"})
    assert TopicConfig.from_json(answer.body).attributes == {"message.type": "NORMAL"}


def test_a_topic_is_written_and_read_as_its_permission_says(client: BrokerClient) -> None:
    client.send("permitted", b"x")
    client.wait_until_visible("permitted", 1)

    set_topic(client, "permitted", perm="4")
    assert client.send("permitted").code == Answer.NO_PERMISSION
    assert client.pull("permitted").code == Answer.SUCCESS
    set_topic(client, "permitted", perm="2")
    assert client.send("permitted").code == Answer.SUCCESS
    assert client.pull("permitted").code == Answer.NO_PERMISSION


def test_a_deleted_topic_is_gone_with_its_messages_and_offsets(client: BrokerClient) -> None:
    client.send("gone", b"old")
    client.wait_until_visible("gone", 1)
    assert commit(client, "g-gone", "gone", 1).code == Answer.SUCCESS

    assert delete_topic(client, "gone").code == Answer.SUCCESS
    route = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "gone"})
    pulled = client.pull("gone")
    new = client.send("gone", b"new")

    assert (route.code, pulled.code) == (Answer.TOPIC_NOT_EXIST, Answer.TOPIC_NOT_EXIST)
    assert (
        "gone"
        not in ConsumerOffsets.from_json(client.ask(Code.GET_ALL_CONSUMER_OFFSET).body).offset_table
    )
    assert number(new, "queueOffset") == 0
    client.wait_until_visible("gone", 1)
    assert bodies(client.pull("gone")) == [b"new"]
    assert committed(client, "g-gone", "gone") is None
    assert delete_topic(client, "gone").code == Answer.SUCCESS
    assert delete_topic(client, "gone").code == Answer.SUCCESS, "as Java's broker answers"


def test_a_group_loses_its_offsets_only_if_that_is_asked_for(client: BrokerClient) -> None:
    client.send("grouped")
    client.wait_until_visible("grouped", 1)
    for group in ("kept", "cleaned"):
        set_group(client, group, retry_max_times=5)
        assert commit(client, group, "grouped", 1).code == Answer.SUCCESS

    assert delete_group(client, "kept", clean=False).code == Answer.SUCCESS
    assert delete_group(client, "cleaned", clean=True).code == Answer.SUCCESS

    assert not {"kept", "cleaned"} & groups(client).keys()
    assert committed(client, "kept", "grouped") == 1
    assert committed(client, "cleaned", "grouped") is None
    assert delete_group(client, "cleaned", clean=True).code == Answer.SUCCESS


def test_a_client_that_is_still_there_creates_its_deleted_group_again(client: BrokerClient) -> None:
    client.beat("c1", consumer("alive", "t"))
    delete_group(client, "alive", clean=True)

    assert client.beat("c1", consumer("alive", "t")).code == Answer.SUCCESS

    assert "alive" in groups(client)
    assert client.client_ids("alive") == ["c1"]


def test_a_group_consumes_as_its_settings_say(client: BrokerClient) -> None:
    client.send("set-up")
    client.wait_until_visible("set-up", 1)
    everyone = consumer("set-up", "set-up")
    client.beat("c1", everyone)

    set_group(client, "set-up", consume_enable=False)
    assert client.pull("set-up", consumerGroup="set-up").code == Answer.NO_PERMISSION
    set_group(client, "set-up", retry_queue_nums=0)
    assert client.pull("set-up", consumerGroup="set-up").code == Answer.SUCCESS
    back = {"offset": "0", "group": "set-up", "delayLevel": "0", "originMsgId": "x"}
    pulled = client.pull("set-up", consumerGroup="set-up")
    [record] = map(message_record.decode, message_record.divide(pulled.body))
    back["offset"] = str(record.physical_offset)
    assert client.ask(Code.CONSUMER_SEND_MSG_BACK, back).code == Answer.SUCCESS
    assert DelayOffsets.from_json(client.ask(Code.GET_ALL_DELAY_OFFSET).body).offset_table["3"] == 0


def test_a_message_is_shown_by_its_id(client: BrokerClient) -> None:
    sent = client.send("shown", b"found")
    client.wait_until_visible("shown", 1)
    assert sent.ext_fields is not None
    offset = int(sent.ext_fields["msgId"][-16:], 16)

    found = client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    between = client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(offset + 1)})
    beyond = client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(1 << 60)})

    assert message_record.decode(found.body).body == b"found"
    assert (between.code, beyond.code) == (Answer.SYSTEM_ERROR, Answer.SYSTEM_ERROR)
    assert "there is no message" in (between.remark or "")


def test_the_member_says_how_it_does(client: BrokerClient) -> None:
    client.send("counted")

    table = RuntimeInfo.from_json(client.ask(Code.GET_BROKER_RUNTIME_INFO).body).table

    assert table["brokerVersionDesc"] == "V5_3_3"
    assert int(table["putMessageTimesTotal"]) > 0
    assert table["dledgerLeaderId"] == "n0"


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"topic": "bad topic"}, Answer.INVALID_PARAMETER, "is no name of a topic"),
        ({"topic": "t" * 128}, Answer.INVALID_PARAMETER, "is no name of a topic"),
        ({"topic": "rmq_sys_broker_state"}, Answer.INVALID_PARAMETER, "of the system"),
        ({"readQueueNums": "0"}, Answer.INVALID_PARAMETER, "readQueueNums is 0"),
        ({"writeQueueNums": "-1"}, Answer.INVALID_PARAMETER, "writeQueueNums is -1"),
        ({"writeQueueNums": "100001"}, Answer.INVALID_PARAMETER, "from 1 to 100000"),
        ({"writeQueueNums": "100000"}, Answer.TOPIC_NOT_EXIST, "more than 100000 queues"),
        ({"perm": "8"}, Answer.INVALID_PARAMETER, "perm is 8"),
        ({"perm": "x"}, Answer.SYSTEM_ERROR, "perm"),
        ({"topicFilterType": "ALL"}, Answer.INVALID_PARAMETER, "topicFilterType"),
        ({"attributes": "+queue.type=BatchCQ"}, Answer.INVALID_PARAMETER, "queue.type=BatchCQ"),
        ({"attributes": "queue.type"}, Answer.INVALID_PARAMETER, "attributes has"),
    ],
)
def test_bad_settings_of_a_topic_are_refused_in_words_and_change_nothing(
    client: BrokerClient, changed: dict[str, str], code: ResponseCode, words: str
) -> None:
    set_topic(client, "sound")
    before = topics(client)

    answer = set_topic(client, "sound", **changed)

    assert answer.code == code, answer.remark
    assert words in (answer.remark or "")
    assert topics(client) == before


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", Answer.SYSTEM_ERROR, ""),
        (b'{"groupName":7}', Answer.SYSTEM_ERROR, "groupName"),
        (b'{"groupName":"bad group"}', Answer.INVALID_PARAMETER, "is no name"),
        (b'{"groupName":"' + b"g" * 121 + b'"}', Answer.INVALID_PARAMETER, "is no name"),
        (b'{"groupName":"g","retryQueueNums":17}', Answer.INVALID_PARAMETER, "from 0 to 16"),
        (b'{"groupName":"g","retryMaxTimes":4294967296}', Answer.SYSTEM_ERROR, "retryMaxTimes"),
        (
            b'{"groupName":"g","attributes":{"a":"' + b"b" * 5000 + b'"}}',
            Answer.INVALID_PARAMETER,
            "more than 4096 bytes",
        ),
    ],
)
def test_bad_settings_of_a_group_are_refused_in_words_and_change_nothing(
    client: BrokerClient, body: bytes, code: ResponseCode, words: str
) -> None:
    before = groups(client)

    answer = client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    assert answer.code == code, answer.remark
    assert words in (answer.remark or "")
    assert groups(client) == before


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_broker_state", "TBW102", "a b"])
def test_a_topic_of_the_system_is_never_deleted(client: BrokerClient, topic: str) -> None:
    assert delete_topic(client, topic).code == Answer.INVALID_PARAMETER


def test_sends_around_deletions_never_leave_a_log_that_members_cannot_apply(
    tmp_path: Path,
) -> None:
    """An offset of the deleted topic, given to a message of the next one, would end all members."""
    with BrokerGroup(tmp_path, 1) as group:
        group.master()
        with BrokerClient(group.broker_addresses["n0"]) as client:
            opaques = []
            for round_ in range(30):
                opaques += [begin_send(client, b"%d-%d" % (round_, n)) for n in range(10)]
                opaques.append(client.begin(Code.DELETE_TOPIC_IN_BROKER, {"topic": "t"}))
            codes = [client.answer(opaque).code for opaque in opaques]
        assert set(codes) <= {Answer.SUCCESS, Answer.TOPIC_NOT_EXIST, Answer.SERVICE_NOT_AVAILABLE}
        assert codes.count(Answer.SUCCESS) > 10

        group.kill("n0")
        group.start("n0")
        group.wait_until_up("n0")
        group.master()
        with BrokerClient(group.broker_addresses["n0"]) as client:
            delete_topic(client, "t")
            assert number(client.send("t", b"last"), "queueOffset") == 0
            client.wait_until_visible("t", 1)
            assert bodies(client.pull("t")) == [b"last"]


def begin_send(client: BrokerClient, body: bytes) -> int:
    ext = {
        "a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    }  # fmt: skip
    return client.begin(Code.SEND_MESSAGE_V2, ext, body)


def test_every_member_takes_changes_and_shows_them(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            assert set_topic(client, "everywhere").code == Answer.SUCCESS
            assert set_group(client, "everywhere").code == Answer.SUCCESS
        for member in group.peers:
            with BrokerClient(group.broker_addresses[member]) as client:
                assert set_topic(client, f"by-{member}").code == Answer.SUCCESS
                assert delete_topic(client, f"by-{member}").code == Answer.SUCCESS
                wait_for(lambda: "everywhere" in groups(client), "it shows the group")
                assert "everywhere" in topics(client).topic_config_table
