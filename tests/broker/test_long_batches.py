"""Batches of thousands of messages: a thread of the broker reads them."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.between_members.door_numbers import COUNT_MAX
from dledger_broker.door.calls.call import Call
from dledger_broker.door.sending import long_batches
from dledger_broker.door.sending.long_batches import LongBatches
from dledger_broker.door.sending.sends import Sends
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker_client.client import BrokerClient, bodies, number, send_ext
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import answers, message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BATCH_MESSAGES_MAX, BatchMessage
from dledger_formats.rocketmq.message_id import MessageId, texts
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import HOLD_S
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Answer = ResponseCode
LONG = COUNT_MAX + 1
SEND, SEND_BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
PROPERTIES = b"TAGS\x01a\x02UNIQ_KEY\x01%b\x02" % (b"0" * 32)


def batch(count: int, properties: bytes = PROPERTIES) -> bytes:
    return message_batch.encode(BatchMessage(0, b"%d" % n, properties) for n in range(count))


def test_a_long_batch_is_stored_whole_at_consecutive_offsets(client: BrokerClient) -> None:
    sent = client.ask(SEND_BATCH, send_ext("long", m="true"), batch(LONG))

    assert (sent.code, number(sent, "queueOffset")) == (Answer.SUCCESS, 0)
    assert sent.ext_fields is not None
    assert len(sent.ext_fields["msgId"].split(",")) == LONG
    client.wait_until_visible("long", LONG)
    assert bodies(client.pull("long", LONG - 2)) == [b"%d" % n for n in range(LONG - 2, LONG)]


def test_the_answer_to_the_largest_batch_has_the_id_of_each_message(client: BrokerClient) -> None:
    """On a crowded machine a batch may take longer than the 2.5 s that a send has."""
    largest = batch(BATCH_MESSAGES_MAX)

    def sent_in_time() -> RemotingCommand | None:
        answer = client.ask(SEND_BATCH, send_ext("largest", m="true"), largest)
        return answer if answer.code == Answer.SUCCESS else None

    sent = wait_for(sent_in_time, "the batch is stored in time")

    assert sent.ext_fields is not None
    assert len(set(sent.ext_fields["msgId"].split(","))) == BATCH_MESSAGES_MAX


def test_the_answer_to_the_largest_batch_has_room_for_long_ids() -> None:
    ids = ",".join(texts(bytes(20), range(BATCH_MESSAGES_MAX)))

    assert len(ids) + 1000 < answers.HEADER_BYTES_MAX


def test_what_a_connection_sends_after_a_long_batch_comes_after_it(client: BrokerClient) -> None:
    sent = client.begin_all(
        (SEND, send_ext("ordered"), b"before"),
        (SEND_BATCH, send_ext("ordered", m="true"), batch(LONG)),
        (SEND, send_ext("ordered"), b"after"),
        (SEND_BATCH, send_ext("ordered", m="true"), batch(2)),
    )

    offsets = [number(client.answer(opaque), "queueOffset") for opaque in sent]

    assert offsets == [0, 1, LONG + 1, LONG + 2]


@pytest.mark.parametrize(
    ("topic", "body", "code", "words"),
    [
        ("t", batch(LONG, b"DELAY\x011\x02"), Answer.MESSAGE_ILLEGAL, "delayed messages"),
        ("t", batch(LONG, b"TRAN_MSG\x01true\x02"), Answer.NO_PERMISSION, "transactions"),
        ("%RETRY%g", batch(LONG), Answer.MESSAGE_ILLEGAL, "retry topic"),
        ("t", batch(LONG)[:-1], Answer.MESSAGE_ILLEGAL, "batch"),
    ],
)
def test_a_long_batch_is_refused_in_words(
    client: BrokerClient, topic: str, body: bytes, code: ResponseCode, words: str
) -> None:
    refused = client.ask(SEND_BATCH, send_ext(topic, m="true"), body)

    assert refused.code == code
    assert words in (refused.remark or "")
    assert client.send("still-served").code == Answer.SUCCESS


def test_a_batch_of_too_many_messages_is_refused_for_good(client: BrokerClient) -> None:
    body = batch(BATCH_MESSAGES_MAX + 1)

    refused = client.ask(SEND_BATCH, send_ext("too-many", m="true"), body)

    assert refused.code == Answer.MESSAGE_ILLEGAL
    assert str(BATCH_MESSAGES_MAX) in (refused.remark or "")


def test_a_batch_of_more_messages_than_may_wait_is_refused_for_good(tmp_path: Path) -> None:
    with (
        BrokerGroup(tmp_path, 1, pending_requests_max=10) as group,
        BrokerClient(group.broker_addresses[group.master()]) as client,
    ):
        refused = client.ask(SEND_BATCH, send_ext("t", m="true"), batch(10))
        taken = client.ask(SEND_BATCH, send_ext("t", m="true"), batch(9))

    assert (refused.code, taken.code) == (Answer.MESSAGE_ILLEGAL, Answer.SUCCESS)
    assert "at most 10" in (refused.remark or "")


def channel() -> Any:
    return SimpleNamespace(reads_waiting=0, go_on=lambda: None, born_host=bytes(8))


class KeptCall(Call):
    """A call that keeps its refusals."""

    def __init__(self, size: int, arrived_s: float) -> None:
        door: Any = None
        command = RemotingCommand(code=SEND_BATCH, opaque=1, body=bytes(size))
        super().__init__(channel(), command, door, arrived_s)
        self.refused: list[RefusedError] = []

    def refuse(self, error: RefusedError) -> None:
        self.refused.append(error)


def call(size: int, age_s: float = 0.0) -> Any:
    return KeptCall(size, asyncio.get_running_loop().time() - age_s)


async def test_a_connection_is_held_up_while_a_thread_has_its_batch() -> None:
    with ThreadPoolExecutor(1) as threads:
        batches, taken = LongBatches(threads), call(1)
        proposed: asyncio.Future[list[bytearray]] = asyncio.get_running_loop().create_future()
        went_on = asyncio.Event()
        taken.channel.go_on = went_on.set

        batches.take(taken, lambda: [bytearray(b"x")], proposed.set_result)

        assert taken.channel.reads_waiting >= 8
        assert not batches.is_idle
        assert await proposed == [b"x"]
        await went_on.wait()
        assert taken.channel.reads_waiting == 0


async def test_a_refusal_of_a_thread_is_told() -> None:
    with ThreadPoolExecutor(1) as threads:
        batches, taken = LongBatches(threads), call(1)
        went_on = asyncio.Event()
        taken.channel.go_on = went_on.set

        def encode() -> list[bytearray]:
            raise FormatError("no batch")

        batches.take(taken, encode, lambda _: None)
        await went_on.wait()

    assert [refusal.remark for refusal in taken.refused] == ["no batch"]


async def test_only_so_much_waits_for_the_threads() -> None:
    with ThreadPoolExecutor(1) as threads:
        batches = LongBatches(threads)
        batches.take(call(long_batches.BYTES_MAX), list, lambda _: None)

        with pytest.raises(RefusedError, match="is not stored"):
            batches.take(call(1), list, lambda _: None)


async def test_a_batch_whose_turn_comes_too_late_is_refused_unread() -> None:
    """It was stored, although its client had an answer before, and had sent it again."""
    with ThreadPoolExecutor(1) as threads:
        batches, taken = LongBatches(threads), call(1, age_s=HOLD_S)
        went_on = asyncio.Event()
        taken.channel.go_on = went_on.set

        batches.take(taken, lambda: pytest.fail("it is read"), lambda _: pytest.fail("proposed"))
        await went_on.wait()

    assert [refusal.code for refusal in taken.refused] == [Answer.SERVICE_NOT_AVAILABLE]
    assert "is not stored" in (taken.refused[0].remark or "")


async def test_a_batch_that_a_thread_has_for_too_long_is_not_proposed() -> None:
    with ThreadPoolExecutor(1) as threads:
        batches, taken = LongBatches(threads), call(1)
        went_on = asyncio.Event()
        taken.channel.go_on = went_on.set

        def encode() -> list[bytearray]:
            taken.arrived_s -= HOLD_S
            return [bytearray(b"x")]

        batches.take(taken, encode, lambda _: pytest.fail("it is proposed"))
        await went_on.wait()

    assert [refusal.code for refusal in taken.refused] == [Answer.SERVICE_NOT_AVAILABLE]


async def test_a_long_batch_takes_no_thread_that_others_wait_for() -> None:
    """Many of them held up look-ups and messages that come back, for seconds."""
    proposed: asyncio.Future[RecordDraft] = asyncio.get_running_loop().create_future()
    owner: Any = SimpleNamespace(
        topic=lambda _: TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6),
        propose=lambda draft, _: proposed.set_result(draft),
    )
    member: Any = SimpleNamespace(
        drafts=SimpleNamespace(entries_max=10_000), body_bytes_max=1 << 20
    )
    nothing: Any = None
    taken = call(0)
    taken.command = RemotingCommand(
        code=SEND_BATCH, opaque=1, body=batch(LONG), ext_fields=send_ext("t", m="true")
    )
    with ThreadPoolExecutor(1) as thread:
        sends = Sends(nothing, member, owner, nothing, nothing, thread, lambda: bytes(8))
        sends.send(taken)

        draft = await proposed

    assert len(draft.bodies) == LONG


def test_the_ids_of_many_messages_are_those_of_each() -> None:
    host, offsets = bytes(range(250, 256)) + b"\x2a\x9f", [0, 48, 2**62 + 1]

    assert texts(host, offsets) == [str(MessageId(host, offset)) for offset in offsets]


def least_s(work: Callable[[], object]) -> float:
    """Return the least processor time of some runs: other work on the machine adds to it."""
    taken_s = []
    for _ in range(5):
        begun_s = time.thread_time()
        work()
        taken_s.append(time.thread_time() - begun_s)
    return min(taken_s)


def test_the_largest_batch_is_counted_in_milliseconds() -> None:
    body = batch(BATCH_MESSAGES_MAX)

    assert message_batch.count(body) == BATCH_MESSAGES_MAX
    assert least_s(lambda: message_batch.count(body)) < 0.02


def test_the_event_loop_looks_at_no_more_of_a_batch_than_tells_that_it_is_long() -> None:
    body, wrong = batch(BATCH_MESSAGES_MAX), batch(LONG)[:-1]

    assert long_batches.is_long(body)
    assert (
        least_s(lambda: long_batches.is_long(body)) < least_s(lambda: message_batch.count(body)) / 3
    )
    assert not long_batches.is_long(wrong)
    assert long_batches.is_long(wrong + bytes(100)), "a thread refuses it"


@pytest.mark.parametrize(
    ("count", "cut", "words"),
    [(BATCH_MESSAGES_MAX + 1, 0, "more than"), (BATCH_MESSAGES_MAX, 1, "add up")],
    ids=["too many", "cut short"],
)
def test_a_batch_whose_sizes_are_wrong_is_refused_before_its_messages_are_read(
    count: int, cut: int, words: str
) -> None:
    """The event loop refuses it, and once read thousands of messages before."""
    largest, wrong = batch(BATCH_MESSAGES_MAX), batch(count)
    wrong = wrong[: len(wrong) - cut]

    def refuse() -> None:
        with pytest.raises(FormatError, match=words):
            message_batch.decode(wrong)

    assert least_s(refuse) < least_s(lambda: message_batch.decode(largest)) / 2
