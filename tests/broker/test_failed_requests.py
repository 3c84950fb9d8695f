"""Requests whose service raises: each is answered once, and its connection goes on."""

import asyncio
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.administration.tables import TableRequests
from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.between_members.door_numbers import COUNT_MAX
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.dispatcher import BrokerRequests
from dledger_broker.door.calls.failures import answered
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.passing_on import waiting
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulled_messages import LoopReads
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.door.reading.queue_offsets import QueueOffsets
from dledger_broker.door.reading.views import MessageViews
from dledger_broker.door.sending.long_batches import LongBatches
from dledger_broker.door.sending.repeated_sends import RepeatedSends
from dledger_broker.door.sending.returns import Returns
from dledger_broker.door.sending.sends import Sends
from dledger_broker.errors import QueueFilesError
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.errors import UnreadableError
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import pull_ext, send_ext
from dledger_broker_client.proposing_leaders import HOST, ProposingLeader, message_draft
from dledger_broker_client.proven_member import ProvenMember
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.errors import StoreError
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Outcome

Code = RequestCode
QUEUE = {"topic": "t", "queueId": "0"}
ERRORS = [
    QueueFilesError("cannot read units"),
    StoreError("cannot read the log"),
    UnreadableError("cannot read an entry"),
    IndexError("cannot read what was removed"),
    OSError("cannot read at all"),
    FormatError("cannot read the form"),
    RuntimeError("cannot happen"),
]
REQUESTS = {
    Code.GET_MIN_OFFSET: QUEUE,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: {**QUEUE, "timestamp": "1"},
    Code.GET_EARLIEST_MSG_STORETIME: QUEUE,
    Code.QUERY_CONSUMER_OFFSET: QUEUE,
    Code.VIEW_MESSAGE_BY_ID: {"offset": "0"},
    Code.CONSUMER_SEND_MSG_BACK: {"offset": "0", "group": "g", "delayLevel": "0"},
    Code.PULL_MESSAGE: pull_ext("t", 0),
    Code.SEND_BATCH_MESSAGE: {},
}


def serve(call: Call, threads: ThreadPoolExecutor, error: Exception) -> None:
    """Serve a request with a reader that raises."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    topics = SimpleNamespace(
        has_queue=lambda *_: True, by_name={"t": SimpleNamespace(config=None, next_offsets=[5])}
    )
    groups = SimpleNamespace(configs={"g": object()})
    tables = SimpleNamespace(topics=topics, groups=groups, last_physical_offset=1000)
    state = SimpleNamespace(tables=tables, next_offset=lambda *_: 5)
    owner: Any = SimpleNamespace(state=state, created_index=lambda _: 0, is_proven=True)
    feed: Any = SimpleNamespace(has_all=True, built_index=5, rebuilds=0)
    kept = SimpleNamespace(kept_offset=fail, min_offset=fail)
    reader: Any = SimpleNamespace(kept=kept, at=fail, raw_at=fail)
    nothing: Any = None
    proofs = Proofs(ProvenMember())
    offsets = QueueOffsets(owner, feed, reader, proofs, threads, young_bytes=900)
    match RequestCode(call.command.code):
        case Code.GET_MIN_OFFSET:
            offsets.min_offset(call)
        case Code.SEARCH_OFFSET_BY_TIMESTAMP:
            offsets.search(call)
        case Code.GET_EARLIEST_MSG_STORETIME:
            offsets.earliest(call)
        case Code.QUERY_CONSUMER_OFFSET:
            offsets.first_if_young(call, SimpleNamespace(topic="t", queue_id=0))  # type: ignore[arg-type]
        case Code.VIEW_MESSAGE_BY_ID:
            MessageViews(owner, reader, threads).message(call)
        case Code.CONSUMER_SEND_MSG_BACK:
            Returns(nothing, owner, reader, nothing, threads, lambda: bytes(8)).take(call)
        case Code.PULL_MESSAGE:
            pulls = Pulls(owner, nothing, feed, reader, threads, ProvenMember(), proofs, fail)
            pulls._requests.check_queue = print  # type: ignore[assignment,method-assign]
            pulls.pull(call)
        case _:
            LongBatches(threads).take(call, fail, fail)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
async def test_a_request_is_answered_whatever_its_task_raises(
    code: RequestCode, error: Exception
) -> None:
    channel: Any = AnswerKeeper()
    went_on = asyncio.Event()
    channel.go_on = lambda: went_on.set() if channel.reads_waiting == 0 else None
    door: Any = SimpleNamespace(counters=BrokerCounters())
    command = RemotingCommand(code=int(code), opaque=1, ext_fields=REQUESTS[code])
    with ThreadPoolExecutor(1) as threads:
        serve(Call(channel, command, door, asyncio.get_running_loop().time()), threads, error)
        async with asyncio.timeout(10):
            await channel.answered.wait()
            while channel.reads_waiting:
                went_on.clear()
                await went_on.wait()

    [answer] = channel.answers
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot" in (answer.remark or "")


class Connection(AnswerKeeper, BrokerConnection):  # type: ignore[misc]
    """A client's own connection, which keeps its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.unread_since_s, self.client_version = None, 0


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("cannot happen")


def new_call(channel: Any, code: RequestCode, ext_fields: dict[str, str]) -> Call:
    door: Any = SimpleNamespace(counters=BrokerCounters())
    command = RemotingCommand(code=int(code), opaque=1, ext_fields=ext_fields)
    return Call(channel, command, door, asyncio.get_running_loop().time())


async def test_the_requests_after_one_whose_service_raises_are_answered_too() -> None:
    channel: Any = Connection()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    services = {1: fail, 2: lambda call: call.answer(ResponseCode.SUCCESS)}
    requests = BrokerRequests(services, {}, {}, door, lambda: None)

    commands = [RemotingCommand(code=code, opaque=code) for code in (1, 2, 1)]
    requests.dispatch(commands, channel, None, math.inf)

    answers = [(answer.opaque, ResponseCode(answer.code)) for answer in channel.answers]
    failed = ResponseCode.SYSTEM_ERROR
    assert answers == [(1, failed), (2, ResponseCode.SUCCESS), (1, failed)]


async def test_a_service_that_raises_after_its_answer_gives_no_second_one() -> None:
    channel = AnswerKeeper()

    def serve_and_fail(call: Call) -> None:
        call.answer(ResponseCode.SUCCESS)
        fail()

    call = new_call(channel, Code.GET_MIN_OFFSET, QUEUE)
    answered(call, partial(serve_and_fail, call))

    assert [answer.code for answer in channel.answers] == [ResponseCode.SUCCESS]


async def test_a_request_whose_answer_cannot_be_encoded_is_refused() -> None:
    channel = AnswerKeeper()
    unreadable: Any = SimpleNamespace(to_ext=fail)
    call = new_call(channel, Code.GET_MIN_OFFSET, QUEUE)

    answered(call, partial(call.answer, ResponseCode.SUCCESS, unreadable))

    assert [answer.code for answer in channel.answers] == [ResponseCode.SYSTEM_ERROR]


async def test_a_pull_that_the_event_loop_reads_is_answered_whatever_that_raises() -> None:
    channel = Connection()
    topics = SimpleNamespace(by_name={"t": SimpleNamespace(config=None, next_offsets=[5])})
    tables = SimpleNamespace(topics=topics, groups=SimpleNamespace(configs={}))
    owner: Any = SimpleNamespace(state=SimpleNamespace(tables=tables, next_offset=lambda *_: 5))
    reader: Any = SimpleNamespace(kept=SimpleNamespace(min_offset=fail))
    turns = ReadTurns(asyncio.get_running_loop().call_soon)
    nothing: Any = None
    pulls = Pulls(
        owner, nothing, nothing, reader, nothing, ProvenMember(), Proofs(ProvenMember()), fail,
        LoopReads(reader, turns),
    )  # fmt: skip

    pulls.pull(new_call(channel, Code.PULL_MESSAGE, pull_ext("t", 0)))

    assert [answer.code for answer in channel.answers] == [ResponseCode.SYSTEM_ERROR]
    assert channel.reads_waiting == 0


async def test_a_pull_that_goes_on_to_the_leader_is_answered_by_it_alone() -> None:
    channel, passed_on = AnswerKeeper(), list[Call]()
    topics = SimpleNamespace(by_name={"t": SimpleNamespace(config=None, next_offsets=[5])})
    tables = SimpleNamespace(topics=topics, groups=SimpleNamespace(configs={}))
    state = SimpleNamespace(tables=tables, next_offset=lambda *_: 5)
    owner: Any = SimpleNamespace(state=state, created_index=lambda _: 0, is_proven=False)
    feed: Any = SimpleNamespace(has_all=True, built_index=5, rebuilds=0)
    kept = SimpleNamespace(min_offset=lambda *_, **__: 3, kept_offset=lambda *_, **__: 3)
    reader: Any = SimpleNamespace(kept=kept)
    nothing: Any = None

    def pass_on(call: Call) -> None:
        passed_on.append(call)
        fail()

    went_on = asyncio.Event()
    channel.go_on = went_on.set  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as threads:
        proofs = Proofs(ProvenMember())
        pulls = Pulls(owner, nothing, feed, reader, threads, ProvenMember(), proofs, pass_on)
        pulls.pull(new_call(channel, Code.PULL_MESSAGE, pull_ext("t", 0)))
        async with asyncio.timeout(10):
            await went_on.wait()
    assert channel.answers == []

    [call] = passed_on
    call.answer(ResponseCode.PULL_OFFSET_MOVED)
    assert [answer.code for answer in channel.answers] == [ResponseCode.PULL_OFFSET_MOVED]


async def test_a_look_up_that_raises_once_it_is_proved_is_answered() -> None:
    channel = AnswerKeeper()
    tables = SimpleNamespace(topics=SimpleNamespace(has_queue=fail))
    owner: Any = SimpleNamespace(state=SimpleNamespace(tables=tables))
    nothing: Any = None
    offsets = QueueOffsets(owner, nothing, nothing, Proofs(ProvenMember()), nothing, young_bytes=0)

    offsets.max_offset(new_call(channel, Code.GET_MAX_OFFSET, QUEUE))
    async with asyncio.timeout(10):
        await channel.answered.wait()

    assert [answer.code for answer in channel.answers] == [ResponseCode.SYSTEM_ERROR]


@pytest.mark.parametrize("error", [LookupError("gone"), RuntimeError("cannot happen")])
async def test_a_repeated_send_stays_in_doubt_whatever_its_look_up_raises(error: Exception) -> None:
    """Its messages are in the log, so a refusal would let the client send them again."""

    def fail(*_: object) -> Any:
        raise error

    ways: list[Way] = []
    draft: Any = SimpleNamespace(call=SimpleNamespace(turned=ways.append))
    member: Any = SimpleNamespace(read=fail)
    nothing: Any = None
    with ThreadPoolExecutor(1) as threads:
        repeated = RepeatedSends(member, nothing, nothing, threads, ended=fail, stored=fail)
        await asyncio.wait([asyncio.ensure_future(repeated._look_up(draft, Numbers(7, [1]), [1]))])

    assert ways == [Way.IN_DOUBT]


class FailingLeader(ProposingLeader):
    """A leader whose member fails while it proposes what is written all the same."""

    body_bytes_max, entries_max = 1 << 20, 10_000

    def __init__(self) -> None:
        super().__init__()
        self.member.body_bytes_max = self.body_bytes_max
        self.member.drafts.entries_max = self.entries_max

    def propose(self, draft: RecordDraft) -> None:
        super().propose(draft)
        raise RuntimeError("cannot happen")


def test_a_draft_whose_proposal_fails_ends_once_and_as_unknown() -> None:
    leader, outcomes = FailingLeader(), list[Outcome]()

    leader.owner.propose(message_draft(("t", 0), outcomes))
    leader.write()

    assert outcomes == [Outcome.UNKNOWN]


def test_a_draft_whose_end_fails_costs_no_other_draft_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader, outcomes = ProposingLeader(), list[Outcome]()
    failing = message_draft(("t", 0), [])
    failing.ended = fail
    drafts = failing, message_draft(("t", 0), outcomes)

    leader.owner.ended(drafts, Outcome.COMMITTED)

    assert outcomes == [Outcome.COMMITTED]
    assert "the end of a proposal was not handled: it is committed" in caplog.text


async def test_a_long_batch_whose_proposal_fails_has_one_answer_which_leaves_it_in_doubt() -> None:
    """It was refused, and its end was a second answer."""
    leader, channel = FailingLeader(), AnswerKeeper()
    config = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)
    changes.make(leader.state.tables, TopicSet(config=config), 0, 1)
    door: Any = SimpleNamespace(
        counters=BrokerCounters(), turned=lambda turned, _: waiting.in_doubt(turned)
    )
    channel.born_host = HOST  # type: ignore[attr-defined]
    command = RemotingCommand(
        code=int(Code.SEND_BATCH_MESSAGE), opaque=1, ext_fields=send_ext("t", m="true"),
        body=message_batch.encode(BatchMessage(0, b"x", b"") for _ in range(COUNT_MAX + 1)),
    )  # fmt: skip
    nothing: Any = None
    member: Any = leader.member
    with ThreadPoolExecutor(1) as thread:
        sends = Sends(nothing, member, leader.owner, nothing, thread, thread, lambda: HOST)
        sends.send(Call(channel, command, door, asyncio.get_running_loop().time()))  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await channel.answered.wait()
        leader.write()
        await asyncio.sleep(0)  # the answers of a turn are written together

    [answer] = channel.answers
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "may be stored" in (answer.remark or "")


async def test_a_table_that_cannot_be_made_is_answered_and_the_next_ones_are_made() -> None:
    channel: Any = AnswerKeeper()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    owner: Any = SimpleNamespace(state=BrokerState())
    nothing: Any = None
    with ThreadPoolExecutor(1) as threads:
        tables = TableRequests(nothing, nothing, owner, threads, Counter())

        def fail(_: object) -> Any:
            raise RuntimeError("cannot happen")

        tables._topics = fail  # type: ignore[assignment,method-assign]
        codes = Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET
        for opaque, code in enumerate(codes):
            call = Call(channel, RemotingCommand(code=int(code), opaque=opaque), door, 0.0)
            serve_table = tables.topics if code == codes[0] else tables.consumer_offsets
            serve_table(call)
        async with asyncio.timeout(10):
            while channel.reads_waiting:
                channel.answered.clear()
                await channel.answered.wait()

    answers = [(answer.opaque, ResponseCode(answer.code)) for answer in channel.answers]
    failed = ResponseCode.SYSTEM_ERROR
    assert answers == [(0, failed), (1, failed), (2, ResponseCode.SUCCESS)]
