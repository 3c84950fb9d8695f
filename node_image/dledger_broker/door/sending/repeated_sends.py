"""Sends that the log has already, or has in part: a door has sent them a second time.

The answer names the place of the first copy. Another copy of a send to any queue may have drawn
another one, so nothing of it counts but its messages.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.sending import repeats
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.send_draft import SendDraft
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import Place, RecordDraft
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_node.embedding import Member
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Outcome


class RepeatedSends:
    """Answers repeated sends with what the log has, and writes what it lacks."""

    def __init__(
        self,
        member: Member,
        owner: LogOwner,
        awaited: AwaitedRepeats,
        threads: ThreadPoolExecutor,
        *,
        ended: Callable[[RecordDraft, Outcome], None],
        stored: Callable[[SendDraft], None],
    ) -> None:
        """`ended` is called when a draft of what the log lacked has ended; `stored` answers a send
        whose draft has the places of all its messages.
        """
        self._member = member
        self._owner = owner
        self._awaited = awaited
        self._threads = threads
        self._ended = ended
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._lookups: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no send is looked up."""
        return not self._lookups

    def answer(self, draft: SendDraft, numbers: Numbers) -> None:
        """Answer a send that the log has, or write what the log lacks of it."""
        indexes = self._member.find_numbers(numbers)
        found = [index for index in indexes if index is not None]
        if found and max(found) > self._member.readable_index:
            self._await_first_copy(draft, numbers, max(found))
        elif found:
            task = self._loop.create_task(self._look_up(draft, numbers, indexes))
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)
        else:
            self._write_missing(draft, numbers, indexes, draft.place)

    def _await_first_copy(self, draft: SendDraft, numbers: Numbers, index: int) -> None:
        """Answer a send once the entries of its first copy are committed."""

        def ended(is_committed: bool) -> None:
            if is_committed:
                self.answer(draft, numbers)
            else:
                draft.call.turned(Way.IN_DOUBT)  # the door asks again

        self._awaited.wait(index, draft.call.arrived_s, ended)

    async def _look_up(
        self, draft: SendDraft, numbers: Numbers, indexes: Sequence[int | None]
    ) -> None:
        """Answer a send with the places of its entries, or write the rest beside those."""
        found = [index for index in indexes if index is not None]
        try:
            records = await self._loop.run_in_executor(
                self._threads, repeats.stored_records, self._member, found
            )
        except Exception as error:  # whatever it is, the log has messages: the door asks again
            draft.call.turned(Way.IN_DOUBT)
            if isinstance(error, LookupError):
                return
            raise
        if len(found) < len(indexes):
            self._write_missing(draft, numbers, indexes, self._place_of(records[0], draft))
            return
        draft.positions = [record.physical_offset - ENTRY_HEADER_SIZE for record in records]
        draft.queue_id = repeats.queue_of(records[0])
        draft.first_offset = records[0].queue_offset
        self._stored(draft)

    def _place_of(self, record: MessageRecord, draft: SendDraft) -> Place:
        """Return the place for the rest of a send: that of a stored message, if it still exists."""
        topic, queue_id = record.topic, record.queue_id
        is_there = self._owner.state.tables.topics.has_queue(topic, queue_id)
        return (topic, queue_id) if is_there and topic == draft.place[0] else draft.place

    def _write_missing(
        self,
        draft: SendDraft,
        numbers: Numbers,
        indexes: Sequence[int | None],
        place: Place,
    ) -> None:
        """Write what the log lacks of a send to a queue of its topic."""
        by_sequence = dict(
            zip(draft.numbers.sequences, draft.bodies[draft.changes :], strict=True)
            if draft.numbers is not None
            else ()
        )
        missing = [
            sequence
            for sequence, index in zip(numbers.sequences, indexes, strict=True)
            if index is None
        ]
        if not by_sequence.keys() >= set(missing):  # the log had one of them, and lacks it now
            draft.call.turned(Way.IN_DOUBT)
            return
        bodies = [by_sequence[sequence] for sequence in missing]
        if place != draft.place:
            for body in bodies:
                assert isinstance(body, bytearray)
                message_record.move(body, place[1])
        created = draft.created
        try:  # the draft's new topic was forgotten when the draft was refused
            if created is not None and self._owner.topic(created.topic_name) is not None:
                created = None
            changes = () if created is None else (self._owner.create_topic(created),)
        except RefusedError:
            draft.call.turned(Way.IN_DOUBT)
            return
        rest = SendDraft(changes, bodies, place, self._ended)  # type: ignore[arg-type]
        rest.call, rest.unique_key, rest.queue_id = draft.call, draft.unique_key, draft.queue_id
        rest.created, rest.repeats = created, numbers
        rest.numbers = Numbers(numbers.producer, missing)
        self._owner.propose(rest, draft.call.arrived_s)
