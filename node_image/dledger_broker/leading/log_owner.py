"""The owner of the log: it gives messages their offsets, and knows what is not applied yet.

A leader begins once every entry of its log is committed and applied, its own first one included.
Then the state has the next offset of every queue, and from there on all messages are its own. An
offset is given out while its entry is written, so offsets have the order of the log.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from dledger_broker.leading.deletions import Deletions
from dledger_broker.leading.pending_topics import PendingTopics
from dledger_broker.leading.record_draft import STATE_PLACE, Place, RecordDraft, state_record
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.state_records import (
    AnyStateRecord,
    GroupDeleted,
    TopicDeleted,
    TopicSet,
)
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.embedding import Member
from dledger_node.errors import StoreError
from dledger_node.services.drafts import Draft, Outcome, Stamper

logger = logging.getLogger(__name__)

NO_TERM: Final = -1


class LogOwner(Stamper):
    """Stamps what this member proposes while it leads."""

    def __init__(self, member: Member, store_host: Callable[[], bytes]) -> None:
        """`store_host` returns the address at which new messages say that they are stored."""
        self._member = member
        self._store_host = store_host
        self._term = NO_TERM
        """The term whose offsets `_next_offsets` has."""
        self._next_offsets: dict[Place, int] = {}
        """The next offset of each queue that this leader has written to."""
        self.topics = PendingTopics(lambda: self.state)
        self.deleted_groups = Deletions(lambda: self.state.tables.last_physical_offset)
        self.coming_groups: dict[str, SubscriptionGroup] = {}
        """By name: settings of groups that administrators have sent, and that may not be applied
        yet.
        """

    @property
    def state(self) -> BrokerState:
        """The state up to the applied index."""
        return self._member.machine(BrokerState)

    def wall_ms(self) -> int:
        """Return the time of this member's wall clock, in ms since 1970."""
        return self._member.wall_ms()

    @property
    def leads(self) -> bool:
        """Whether this member leads, ready or not."""
        return self._member.leads

    @property
    def term(self) -> int:
        """The last term in which this member was ready to lead."""
        return self._term

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before its term."""
        return self._member.leads and self.is_ready()

    # -- what the drafts ask -----------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Return whether drafts can be stamped in the term that this member leads."""
        member = self._member
        if self._term == member.term:
            return True
        if not (member.master and member.has_applied_all):
            return False
        self._term = member.term
        self._next_offsets.clear()
        self.topics.clear()
        self.deleted_groups.clear()
        self.coming_groups.clear()
        return True

    def may_be_written(self, draft: Draft) -> bool:
        """Return whether the queues of a draft's messages will exist once the log is applied.

        The settings that create them may have been refused since the draft was proposed: if they
        came earlier, they have waited for longer.
        """
        assert isinstance(draft, RecordDraft)
        return draft.setting is None or not draft.setting.is_refused

    def stamp(self, term: int, drafts: Sequence[Draft], positions: Sequence[int]) -> None:
        """Give the messages their offsets and times: they are being written now."""
        if term != self._term:
            raise StoreError(f"messages of term {term} are written, but {self._term} was prepared")
        now_ms, at = self.wall_ms(), 0
        for draft in drafts:
            assert isinstance(draft, RecordDraft)
            end = at + len(draft.bodies)
            first = draft.changes
            draft.positions = positions[at + first : end]
            for number, body in enumerate(draft.bodies):
                assert isinstance(body, bytearray)
                place = STATE_PLACE
                if number >= first:
                    places = draft.places
                    place = draft.place if places is None else places[number - first]
                offset = self._next_offset(place)
                if number == first:
                    draft.first_offset = offset
                physical_offset = positions[at + number] + ENTRY_HEADER_SIZE
                message_record.stamp(
                    body,
                    queue_offset=offset,
                    physical_offset=physical_offset,
                    store_timestamp=now_ms,
                )
                if place == STATE_PLACE:
                    self.topics.stamped(body, physical_offset)
            if draft.deletion is not None:
                self._stamp_deletion(draft.deletion, positions[end - 1] + ENTRY_HEADER_SIZE)
            at = end

    def _stamp_deletion(self, deletion: TopicDeleted | GroupDeleted, physical_offset: int) -> None:
        """Record the place of a deletion in the log, which is the last record of its draft.

        A topic of the same name starts again at offset 0, as in the state.
        """
        if isinstance(deletion, GroupDeleted):
            self.deleted_groups.stamped(deletion.group, physical_offset)
            return
        self.topics.deletions.stamped(deletion.topic, physical_offset)
        for place in [place for place in self._next_offsets if place[0] == deletion.topic]:
            del self._next_offsets[place]

    def ended(self, drafts: Sequence[Draft], outcome: Outcome) -> None:
        """Call what waits for the end of each draft, also if one of them raises."""
        for draft in drafts:
            assert isinstance(draft, RecordDraft)
            try:
                draft.end(outcome)
            except Exception:  # whatever it is: it must not cost other clients their answers
                logger.exception("the end of a proposal was not handled: it is %s", outcome.value)

    def propose(self, draft: RecordDraft, arrived_s: float | None = None) -> None:
        """Propose records whose request came at `arrived_s`, or comes now.

        Those that are too long for the log must be refused before.

        A draft with a place that the state would not take ends as refused. If it were in the log,
        no member could ever apply the log again, even after a restart. So does a draft for a topic
        that is being deleted.

        The proposal itself raises nothing. If it fails unexpectedly, the draft ends as unknown,
        since it may be written.
        """
        topics, deletions = self.state.tables.topics, self.topics.deletions
        for place in draft.places or (draft.place,):
            if place[0] in deletions:
                draft.end(Outcome.REFUSED)
                return
            refusal = topics.refusal_of_place(*place)
            if refusal is not None:
                logger.error(
                    "a record is not written, because no member could apply it: %s", refusal
                )
                draft.end(Outcome.REFUSED)
                return
            if not topics.has_queue(*place):
                draft.setting = self.topics.newest(place[0])
        try:
            self._member.drafts.propose(draft, arrived_s)
        except Exception:  # whatever it is: a refusal would let a client send again what is stored
            logger.exception("a proposal failed unexpectedly; its records may be written")
            draft.end(Outcome.UNKNOWN)

    # -- topics ------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic's settings, also of one that is not applied yet.

        Raises RefusedError for one that is being deleted.
        """
        return self.topics.config(name)

    def created_index(self, topic: str) -> int | None:
        """Return the index of the entry that created an applied topic; None without one."""
        return self.state.created_index(topic)

    def end_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets, after all that are written."""
        offset = self._next_offsets.get((topic, queue_id))
        if offset is not None:
            return offset
        # A message that was proposed before the deletion still belongs to the old queue.
        is_deleted = self.topics.deletions.is_stamped(topic)
        return 0 if is_deleted else self.state.next_offset(topic, queue_id)

    def create_topic(self, config: TopicConfig) -> bytearray:
        """Return the change that creates a topic, or changes its settings, to be proposed at once.

        Raises RefusedError and FormatError.
        """
        change = self.change(TopicSet(config=config))
        self.topics.begin_setting(config, change)
        return change

    def forget_topic(self, change: bytearray) -> None:
        """Forget settings of a topic whose record was refused: it is not in the log."""
        self.topics.forget(change)

    def group(self, name: str) -> SubscriptionGroup | None:
        """Return a group's settings, also those of an administrator that are not applied yet."""
        return self.state.tables.groups.configs.get(name) or self.coming_groups.get(name)

    def change(self, record: AnyStateRecord) -> bytearray:
        """Return the record of a change of the state. Raises FormatError."""
        return state_record(record, self.wall_ms(), self._store_host())

    def _next_offset(self, place: Place) -> int:
        offset = self.end_offset(*place)
        self._next_offsets[place] = offset + 1
        return offset
