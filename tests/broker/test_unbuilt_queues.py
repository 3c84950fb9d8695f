"""A pull of a queue that lacks units tells nobody that the messages are gone."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import NotBuiltError
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.first_messages import FirstMessages, FrontUnknownError
from dledger_broker.queues.kept_messages import KeptMessages
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.queues.reader import MessageReader
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import number, pull_ext
from dledger_broker_client.proven_member import ProvenMember
from dledger_formats.log import disk
from dledger_formats.log.disk import EntryHeader
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consume_queue import Unit
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.state_machine.machine import CommittedEntry

END = 10
BEGIN_POS = 1000
"""Retention has removed what was before."""
CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)


class Front:
    """A log without a message, or one that cannot be read."""

    def __init__(self, *, is_readable: bool = True) -> None:
        self.looks = 0
        self._is_readable = is_readable

    def first_offset(self, _: QueueId) -> int | None:
        self.looks += 1
        if not self._is_readable:
            raise FrontUnknownError("the log cannot be read")
        return None

    def is_wanted(self, _: QueueId) -> bool:
        return not self._is_readable


def reader_of(units: list[Unit], front: Front | None = None) -> MessageReader:
    """Return a reader of a queue that ends with these units, in a log whose front was removed."""

    def found(_topic: str, _queue_id: int, first: int, count: int) -> list[Unit]:
        return (
            ([Unit(0, 0, 0)] * (END - len(units)) + units)[first : first + count] if units else []
        )

    store: Any = SimpleNamespace(units=found)
    log: Any = front or Front()
    return MessageReader(store, lambda *_: b"", lambda: BEGIN_POS, lambda _: 0, lambda: 1, log)


@pytest.fixture
def state() -> BrokerState:
    """A state with one queue of ten messages."""
    state = BrokerState()
    changes.make(state.tables, TopicSet(config=CONFIG), 0, 1)
    state.tables.topics.by_name["t"].next_offsets[0] = END
    return state


def pass_on(_: Call) -> None:
    raise AssertionError("a leader passes nothing on")


async def pulled(
    state: BrokerState, *, has_all: bool, front: Front | None = None, held_ms: int = 0
) -> RemotingCommand:
    """Pull offset 3 of a queue without units from a leader; return the answer."""
    owner: Any = SimpleNamespace(state=state, is_proven=True, created_index=lambda _: 0)
    feed: Any = SimpleNamespace(has_all=has_all, built_index=5, rebuilds=0)
    clients: Any = SimpleNamespace(is_broadcasting=lambda *_: False)
    channel: Any = AnswerKeeper()
    member = ProvenMember()
    with ThreadPoolExecutor(1) as threads:
        reader = reader_of([], front)
        pulls = Pulls(owner, clients, feed, reader, threads, member, Proofs(member), pass_on)
        held = {"sysFlag": "6", "suspendTimeoutMillis": str(held_ms)} if held_ms else {}
        request = RemotingCommand(
            code=int(RequestCode.PULL_MESSAGE), opaque=1, ext_fields=pull_ext("t", 3) | held
        )
        door: Any = SimpleNamespace(counters=BrokerCounters())
        arrived_s = asyncio.get_running_loop().time()
        pulls.pull(Call(channel, request, door, arrived_s))
        async with asyncio.timeout(10):
            while not channel.answered.is_set():
                pulls.expire()
                await asyncio.sleep(0.01)
        assert channel.reads_waiting == 0
    [answer] = channel.answers
    return cast("RemotingCommand", answer)


async def test_a_leader_does_not_move_a_consumer_behind_messages_that_are_not_built(
    state: BrokerState,
) -> None:
    """It would skip them, and they would never be delivered."""
    answer = await pulled(state, has_all=False)

    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert number(answer, "nextBeginOffset") == 3


async def test_a_leader_moves_a_consumer_behind_messages_that_were_removed(
    state: BrokerState,
) -> None:
    answer = await pulled(state, has_all=True)

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert number(answer, "nextBeginOffset") == END


@pytest.mark.parametrize("held_ms", [0, 300])
async def test_a_pull_of_a_log_that_cannot_be_read_is_held_and_answered_when_its_time_is_up(
    state: BrokerState, held_ms: int
) -> None:
    front = Front(is_readable=False)
    answer = await pulled(state, has_all=True, front=front, held_ms=held_ms)

    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert number(answer, "nextBeginOffset") == 3
    assert front.looks == 1


def test_a_log_does_not_show_that_a_message_is_gone_that_may_be_being_applied() -> None:
    """The state counts it already, and the log shows only what is applied."""
    units = [Unit(BEGIN_POS + 200, 100, 0)]

    assert reader_of(units).kept.kept_offset(QueueId("t", 0), END, has_all=True) == END
    with pytest.raises(NotBuiltError):
        reader_of(units).kept.kept_offset(QueueId("t", 0), END, has_all=False)


def test_the_first_offset_is_that_of_the_first_unit_whose_message_is_kept() -> None:
    units = [
        Unit(BEGIN_POS - 8, 100, 0),
        Unit(BEGIN_POS + 200, 100, 0),
        Unit(BEGIN_POS + 400, 9, 0),
    ]

    for has_all in (False, True):
        assert reader_of(units).kept.min_offset(QueueId("t", 0), END, has_all=has_all) == END - 2


def test_a_first_offset_is_found_again_without_a_search_until_the_log_loses_its_front() -> None:
    units = [Unit(BEGIN_POS + 100 * number, 100, 0) for number in range(END)]
    begin_pos, offsets = BEGIN_POS + 250, list[int]()

    def found(_topic: str, _queue_id: int, first: int, count: int) -> list[Unit]:
        offsets.append(first)
        return units[first : first + count]

    kept = KeptMessages(
        cast("QueueStore", SimpleNamespace(units=found)), lambda: begin_pos, lambda _: 0,
        lambda: 1, cast("FirstMessages", Front()),
    )  # fmt: skip
    queue = QueueId("t", 0)

    assert kept.min_offset(queue, END, has_all=True) == 3
    offsets.clear()
    assert kept.min_offset(queue, END, has_all=True) == 3
    assert offsets == [3, 2]
    begin_pos = BEGIN_POS + 700
    assert kept.min_offset(queue, END, has_all=True) == 7


def test_only_a_complete_queue_shows_that_no_message_is_kept() -> None:
    reader, queue = reader_of([]), QueueId("t", 0)

    assert reader.kept.min_offset(queue, END, has_all=True) == END
    with pytest.raises(NotBuiltError):
        reader.kept.min_offset(queue, END, has_all=False)


@pytest.mark.parametrize(
    ("applied_index", "is_applying", "has_all"),
    [(-1, False, True), (-1, True, False), (0, False, False)],
)
async def test_the_queues_have_all_messages_only_while_no_entries_are_being_applied(
    tmp_path: Path, applied_index: int, is_applying: bool, has_all: bool
) -> None:
    """Else a message that the state has counted, but no queue has, would look like damage."""
    member: Any = SimpleNamespace(applied_index=applied_index, is_applying=is_applying)
    feed = QueueFeed(member, tmp_path, built=lambda _: None, rebuilding=lambda: None)

    assert feed.has_all is has_all


class MemberBehindItsState:
    """A member that fetched a snapshot of the state before the entries that it includes."""

    begin_index, applied_index, is_applying = 3, 25, False

    def __init__(self) -> None:
        self.end_index = 18
        self.readable_index = 12
        """The entries after it may be those of a deposed leader."""
        self.was_read: list[tuple[int, int]] = []
        self.listener: Callable[[int], None] = lambda _: None

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        self.listener = listener

    def catch_up(self) -> None:
        """Get the rest of the log; the state has it already."""
        self.end_index = self.readable_index = 25
        self.listener(self.applied_index)

    def read_in_memory(self, *_: int) -> None:
        return None

    def reading_disk(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, first_index: int, last_index: int) -> tuple[list[CommittedEntry], EntryHeader]:
        self.was_read.append((first_index, last_index))
        if not self.begin_index <= first_index <= last_index <= self.end_index:
            raise IndexError(f"entries {first_index} to {last_index} are not in the log")
        packed = disk.pack_entries(
            [b""], magic=disk.NOOP, first_index=last_index, term=1, pos=0, previous_chain_crc=0
        )
        return [], disk.unpack_header(bytes(packed.data), 0)


async def test_queues_are_built_as_far_as_the_log_of_a_joining_member_is_known_to_be_committed(
    tmp_path: Path,
) -> None:
    member: Any = MemberBehindItsState()
    progress = asyncio.Event()
    feed = QueueFeed(member, tmp_path, built=lambda _: progress.set(), rebuilding=lambda: None)
    async with asyncio.timeout(10):
        await feed.open()
        await progress.wait()
        first_built_index = feed.built_index
        progress.clear()
        member.catch_up()
        await progress.wait()
        await feed.close()

    assert first_built_index == 12
    assert feed.built_index == 25
    assert member.was_read == [(3, 12), (13, 25)]
