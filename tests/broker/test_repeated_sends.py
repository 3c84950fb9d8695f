"""Sends that come again under their numbers, and draw another queue: the first one counts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.sending import sends as sending
from dledger_broker.door.sending.sends import Sends
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import changes
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import number, send_ext
from dledger_broker_client.proposing_leaders import HOST, ProposingLeader
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import message_batch, message_record
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_batch import BatchMessage
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topic_names import SCHEDULE_TOPIC
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Outcome
from dledger_node.state_machine.machine import CommittedEntry

QUEUES = 4
ANY = "-1"
"""The queue of a client that leaves the choice to the broker."""


class NumberedLeader(ProposingLeader):
    """A leader whose log has each number once."""

    def __init__(self) -> None:
        super().__init__()
        config = TopicConfig(
            topic_name="t", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
        )
        changes.make(self.state.tables, TopicSet(config=config), 0, 1)
        self.member.body_bytes_max = 1 << 20
        self.member.drafts.entries_max = 10_000
        self.member.readable_index = 1 << 30
        self.member.find_numbers = self.find
        self.member.read = lambda index, _: ([CommittedEntry(index, self.written[index])], None)
        self._indexes: dict[tuple[int, int], int] = {}

    def find(self, numbers: Numbers) -> list[int | None]:
        """Return the index of each number; None for those that the log lacks."""
        return [self._indexes.get((numbers.producer, each)) for each in numbers.sequences]

    def propose(self, draft: RecordDraft) -> None:
        """Refuse what the log has, as `Drafts` does."""
        if draft.numbers is not None and any(each is not None for each in self.find(draft.numbers)):
            draft.refusal = DLedgerResponseCode.SEQUENCES_NOT_NEW
            self.owner.ended([draft], Outcome.REFUSED)
        else:
            super().propose(draft)

    def write(self) -> None:
        """Write all proposals, and note their numbers."""
        for draft in list(self.proposed):
            if draft.numbers is not None:
                first = len(self.written) + len(draft.bodies) - len(draft.numbers.sequences)
                for at, sequence in enumerate(draft.numbers.sequences, first):
                    self._indexes[draft.numbers.producer, sequence] = at
        super().write()

    @property
    def records(self) -> list[MessageRecord]:
        """The messages of the log."""
        return [message_record.decode(each) for each in self.written]


class Door:
    """A door whose sends the leader takes."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.leader, self.channel = NumberedLeader(), AnswerKeeper()
        self.channel.born_host = HOST  # type: ignore[attr-defined]
        nothing: Any = None
        member: Any = self.leader.member
        self.sends = Sends(
            nothing, member, self.leader.owner, nothing, threads, threads, lambda: HOST
        )

    async def send(
        self, bodies: Sequence[bytes], first: int, queue: str = ANY, properties: str = ""
    ) -> RemotingCommand:
        """Send messages under the numbers from `first` on; return the answer."""
        is_batch = len(bodies) > 1
        body = message_batch.encode(BatchMessage(0, each, b"") for each in bodies)
        command = RemotingCommand(
            code=int(RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2),
            opaque=1, body=body if is_batch else bodies[0],
            ext_fields=send_ext("t", m=str(is_batch).lower(), e=queue, i=properties),
        )  # fmt: skip
        door: Any = SimpleNamespace(counters=BrokerCounters(), ended=lambda _: None)
        channel: Any = self.channel
        call = Call(channel, command, door, asyncio.get_running_loop().time())
        numbered = SimpleNamespace(producer=7, sequence=first, messages=len(bodies))
        call.waiting = SimpleNamespace(number=numbered, is_stored=False, is_in_doubt=False)  # type: ignore[assignment]
        count = len(self.channel.answers)
        self.sends.send(call)
        async with asyncio.timeout(10):
            while len(self.channel.answers) == count:
                self.leader.write()
                await asyncio.sleep(0.001)
        return self.channel.answers[-1]


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """A door whose sends to any queue draw one after the other."""
    draws = iter((2, 0, 3, 1))
    monkeypatch.setattr(sending.random, "randrange", lambda _: next(draws))  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as threads:
        yield Door(threads)


@pytest.mark.parametrize("properties", ["", "DELAY\x011\x02"], ids=["at once", "delayed"])
async def test_a_send_to_any_queue_that_comes_again_is_answered_with_the_queue_that_it_has(
    door: Door, properties: str
) -> None:
    """The answer named a queue in which the message is not: its client looked there for it."""
    first = await door.send([b"one"], 1, properties=properties)
    again = await door.send([b"one"], 1, properties=properties)

    assert first.code == again.code == ResponseCode.SUCCESS
    assert number(first, "queueId") == 2
    assert again.ext_fields == first.ext_fields
    [record] = door.leader.records
    assert (record.topic, record.queue_id) == ((SCHEDULE_TOPIC, 0) if properties else ("t", 2))


@pytest.mark.parametrize("stored", [1, 2, 3])
async def test_the_rest_of_a_batch_to_any_queue_goes_where_its_stored_part_is(
    door: Door, stored: int
) -> None:
    """It went to the queue that the second copy drew, and the answer named one for both."""
    bodies = [b"one", b"two", b"three"]
    await door.send([bodies[stored - 1]], stored, queue="1")
    answer = await door.send(bodies, 1)
    again = await door.send(bodies, 1)

    assert answer.code == ResponseCode.SUCCESS
    assert number(answer, "queueId") == 1
    assert again.ext_fields == answer.ext_fields
    records = door.leader.records
    assert [record.queue_id for record in records] == [1, 1, 1]
    assert sorted(record.body for record in records) == sorted(bodies)
    assert door.leader.state.next_offset("t", 1) == 3


async def test_the_rest_of_a_batch_goes_where_its_client_wants_if_the_stored_part_has_no_queue(
    door: Door,
) -> None:
    """Its topic was deleted and has fewer queues now."""
    await door.send([b"one"], 1, queue="3")
    del door.leader.state.tables.topics.by_name["t"].next_offsets[3:]
    answer = await door.send([b"one", b"two"], 1)

    assert answer.code == ResponseCode.SUCCESS
    assert door.leader.records[-1].queue_id == 2
