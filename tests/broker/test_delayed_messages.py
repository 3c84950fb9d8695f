"""Messages that wait before they are delivered, and messages that consumers return."""

import time
from collections import Counter
from pathlib import Path

import pytest

from dledger_broker.messages import delays
from dledger_broker_client.client import BrokerClient, bodies, consumer, messages
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import properties
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Code = RequestCode
Answer = ResponseCode
ONE_SECOND = "DELAY\x011\x02"
FIVE_SECONDS = "DELAY\x012\x02"


def delivered(client: BrokerClient, topic: str, count: int = 1) -> list[MessageRecord]:
    """Wait until a topic has so many messages; return them."""

    def found() -> list[MessageRecord]:
        answer = client.pull(topic)
        return messages(answer) if answer.code == Answer.SUCCESS else []

    return wait_for(lambda: got if len(got := found()) >= count else [], topic, timeout_s=30)


def give_back(client: BrokerClient, record: MessageRecord, **changed: str) -> RemotingCommand:
    ext = {
        "offset": str(record.physical_offset), "group": "g", "delayLevel": "1",
        "originMsgId": "", "originTopic": record.topic, "unitMode": "false",
        "maxReconsumeTimes": "16",
    } | changed  # fmt: skip
    return client.ask(Code.CONSUMER_SEND_MSG_BACK, ext)


def stored(client: BrokerClient, topic: str, body: bytes = b"x", **changed: str) -> MessageRecord:
    """Send a message; return it as it is stored."""
    assert client.send(topic, body, **changed).code == Answer.SUCCESS
    client.wait_until_visible(topic, 1)
    return messages(client.pull(topic))[-1]


def found_properties(record: MessageRecord) -> dict[str, str]:
    return properties.decode(record.properties.decode())


def test_a_delayed_message_is_delivered_after_its_time_to_its_queue(client: BrokerClient) -> None:
    client.send("late", b"first")
    sent_ms = time.time() * 1000

    answer = client.send("late", b"second", e="3", i=f"TAGS\x01red\x02{ONE_SECOND}")

    assert answer.code == Answer.SUCCESS
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueId"] == "3"
    got = wait_for(
        lambda: messages(found) if (found := client.pull("late", queueId="3")).body else [],
        "the message is delivered",
    )
    assert [record.body for record in got] == [b"second"]
    assert got[0].store_timestamp >= sent_ms + 990
    assert found_properties(got[0]) == {"TAGS": "red", "DLEDGER_SCHEDULED": "1 0"}


def test_a_level_beyond_the_last_counts_as_the_last(client: BrokerClient) -> None:
    client.send("very-late", i="DELAY\x0199\x02")

    [record] = wait_for(
        lambda: (
            messages(found)
            if (found := client.pull("SCHEDULE_TOPIC_XXXX", queueId="17")).body
            else []
        ),
        "the message waits",
    )
    assert found_properties(record)["DELAY"] == "18"


def test_a_message_cannot_claim_to_be_a_delivered_one(client: BrokerClient) -> None:
    record = stored(client, "forged", i="DLEDGER_SCHEDULED\x012 99\x02TAGS\x01red\x02")

    assert found_properties(record) == {"TAGS": "red"}


@pytest.mark.parametrize("topic", ["t", "t" * 127])
@pytest.mark.parametrize("offset", [0, 10**12])
def test_a_message_that_may_wait_fits_the_log_when_it_is_delivered(topic: str, offset: int) -> None:
    long = b"K\x01" + b"v" * 32_500 + b"\x02"
    waits = delays.waiting(MessageRecord(topic, 7, 0, 0, b"body", long), 18)
    assert len(waits.properties) <= delays.PROPERTIES_BYTES_MAX

    queued = MessageRecord(waits.topic, 17, offset, 0, b"body", waits.properties)
    got = delays.delivered(queued)

    assert (got.topic, got.queue_id) == (topic, 7)
    assert len(got.properties) <= len(waits.properties) + delays.MARGIN_BYTES
    assert properties.without(got.properties, b"DLEDGER_SCHEDULED") == long


@pytest.mark.parametrize("encoded", [b"", b"REAL_TOPIC\x01bad topic\x02REAL_QID\x010\x02"])
def test_a_message_that_names_no_topic_goes_to_the_undelivered_ones(encoded: bytes) -> None:
    got = delays.delivered(MessageRecord("SCHEDULE_TOPIC_XXXX", 0, 5, 0, b"", encoded))

    assert (got.topic, got.queue_id) == ("rmq_sys_undelivered", 0)
    assert got.properties == b"DLEDGER_SCHEDULED\x011 5\x02"


def test_a_returned_message_comes_again_in_the_retry_topic_of_its_group(
    client: BrokerClient,
) -> None:
    client.beat("c1", consumer("g", "returned"))
    record = stored(client, "returned", b"again", i="KEYS\x01k\x02")

    assert give_back(client, record).code == Answer.SUCCESS

    [again] = delivered(client, "%RETRY%g")
    assert (again.body, again.reconsume_times) == (b"again", 1)
    found = found_properties(again)
    assert (found["KEYS"], found["RETRY_TOPIC"]) == ("k", "returned")
    assert found["ORIGIN_MESSAGE_ID"].endswith(f"{record.physical_offset:016X}")
    assert again.born_timestamp == record.born_timestamp

    give_back(client, again)
    second = delivered(client, "%RETRY%g", 2)[1]
    assert second.reconsume_times == 2
    assert found_properties(second)["RETRY_TOPIC"] == "returned"
    assert found_properties(second)["ORIGIN_MESSAGE_ID"] == found["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(
    ("times", "changed"),
    [("0", {"delayLevel": "-1"}), ("3", {"maxReconsumeTimes": "3"}), ("16", {})],
)
def test_a_message_that_came_too_often_is_a_dead_letter(
    client: BrokerClient, times: str, changed: dict[str, str]
) -> None:
    group = f"dead-{times}"
    client.beat("c1", consumer(group, f"dying-{times}"))
    record = stored(client, f"dying-{times}", b"enough", j=times)

    answer = give_back(client, record, group=group, **changed)

    assert answer.code == Answer.SUCCESS, answer.remark
    [dead] = delivered(client, f"%DLQ%{group}")
    assert (dead.body, dead.reconsume_times) == (b"enough", int(times) + 1)


def test_a_message_that_a_consumer_sends_to_its_retry_topic_dies_in_time(
    client: BrokerClient,
) -> None:
    client.beat("c1", consumer("sender", "t"))
    for times in ("3", "4"):
        client.send("%RETRY%sender", times.encode(), i=ONE_SECOND, j=times, l="3")

    assert [record.body for record in delivered(client, "%RETRY%sender")] == [b"3"]
    assert [record.body for record in delivered(client, "%DLQ%sender")] == [b"4"]


@pytest.mark.parametrize("times", ["3", "4"], ids=["clients until 5.1.0", "later clients"])
def test_a_message_that_an_ordered_consumer_gives_up_is_a_dead_letter(
    client: BrokerClient, times: str
) -> None:
    """Ordered consumers return no message; those until 5.1.0 count their last try differently."""
    group = f"ordered-{times}"
    client.beat("c1", consumer(group, "t"))
    client.send("t")
    assert client.lock("c1", group, "t", 0) == [0]

    client.send(f"%RETRY%{group}", b"enough", i=ONE_SECOND, j=times, l="3")

    assert [record.body for record in delivered(client, f"%DLQ%{group}")] == [b"enough"]


def test_a_message_that_may_come_again_does_so_also_in_a_group_with_locks(
    client: BrokerClient,
) -> None:
    client.beat("c1", consumer("locking", "t"))
    client.send("t")
    assert client.lock("c1", "locking", "t", 0) == [0]

    client.send("%RETRY%locking", b"again", i=ONE_SECOND, j="2", l="3")

    assert [record.body for record in delivered(client, "%RETRY%locking")] == [b"again"]


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"group": "nobody"}, Answer.SUBSCRIPTION_GROUP_NOT_EXIST, "no consumer group"),
        ({"offset": "123456789"}, Answer.SYSTEM_ERROR, "no message at offset 123456789"),
        ({"offset": "-1"}, Answer.SYSTEM_ERROR, "no message at offset -1"),
        ({"offset": "49"}, Answer.SYSTEM_ERROR, "no message at offset 49"),
        ({"offset": "x"}, Answer.SYSTEM_ERROR, "offset"),
    ],
)
def test_a_return_of_what_is_no_message_is_refused_in_words(
    client: BrokerClient, changed: dict[str, str], code: ResponseCode, words: str
) -> None:
    client.beat("c1", consumer("g", "returned"))
    record = stored(client, "sound")

    answer = give_back(client, record, **changed)

    assert answer.code == code
    assert words in (answer.remark or "")


def test_a_change_of_the_state_cannot_be_returned(client: BrokerClient) -> None:
    client.beat("c1", consumer("g", "returned"))
    change = messages(client.pull("rmq_sys_broker_state"))[0]

    assert give_back(client, change).code == Answer.SYSTEM_ERROR


@pytest.mark.group
def test_delayed_messages_are_delivered_once_each_although_the_leader_is_killed(
    tmp_path: Path,
) -> None:
    """Leaders are killed while messages wait, and again while they are delivered."""
    with BrokerGroup(tmp_path) as group:
        sent = 0
        for _ in range(3):
            leader = group.master()
            with BrokerClient(group.broker_addresses[leader]) as client:
                for _ in range(150):
                    delay = ONE_SECOND if sent % 2 else FIVE_SECONDS
                    answer = client.send("once", b"%d" % sent, i=delay)
                    assert answer.code == Answer.SUCCESS, answer.remark
                    sent += 1
            group.kill(leader)
            group.start(leader)
            group.wait_until_up(leader)
            wait_for(lambda: group.master(), "somebody leads")

        with BrokerClient(group.broker_addresses[group.master()]) as client:

            def got() -> Counter[bytes]:
                found: list[bytes] = []
                while more := bodies(client.pull("once", len(found))):
                    found += more
                return Counter(found)

            wait_for(lambda: len(got()) == sent, "all are delivered", timeout_s=60)
            waiting = "SCHEDULE_TOPIC_XXXX"
            for queue in ("0", "1"):
                ext = {"topic": waiting, "queueId": queue}
                assert client.ask(Code.GET_MAX_OFFSET, ext).ext_fields == {"offset": str(sent // 2)}
            assert set(got().values()) == {1}
