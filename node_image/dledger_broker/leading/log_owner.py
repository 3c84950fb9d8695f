"""The owner of the log: it gives messages their offsets, and knows what is not applied yet.

A leader begins once every entry of its log is committed and applied, its own first one included.
Then the state has the next offset of every queue, and from there on all messages are its own. An
offset is given out while its entry is written, so offsets have the order of the log.
"""

import logging
import time
from collections.abc import Sequence
from typing import Final

from dledger_broker.leading.record_draft import STATE_PLACE, Place, RecordDraft, state_record
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import topics
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import delay_levels, message_record
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import AnyStateRecord, TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.embedding import Member
from dledger_node.errors import StoreError
from dledger_node.services.drafts import Draft, Outcome, Owner

logger = logging.getLogger(__name__)

NO_TERM: Final = -1
SYSTEM_TOPICS: Final = 3
"""Places for the topics of the state, of delayed messages and of undelivered ones."""
SYSTEM_QUEUES: Final = 2 + delay_levels.LEVEL_MAX


class LogOwner(Owner):
    """Stamps what this member proposes while it leads."""

    def __init__(self, member: Member, store_host: bytes) -> None:
        """`store_host` is this member as messages name it."""
        self._member = member
        self._store_host = store_host
        self._term = NO_TERM
        """The term whose offsets `_next_offsets` has."""
        self._next_offsets: dict[Place, int] = {}
        """The next offset of each queue that this leader has written to."""
        self._pending: dict[str, TopicConfig] = {}
        """Topics that were created in this term, and may not be applied yet."""

    @property
    def state(self) -> BrokerState:
        """The state up to the applied index."""
        return self._member.machine(BrokerState)

    @property
    def leads(self) -> bool:
        """Whether this member leads; it need not be ready."""
        return self._member.leads

    @property
    def term(self) -> int:
        """The last term in which this member was ready to lead."""
        return self._term

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before it did."""
        return self._member.leads and self.is_ready()

    # -- what the drafts ask -----------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Tell whether drafts can be stamped in the term that this member leads."""
        member = self._member
        if self._term == member.term:
            return True
        if not (member.master and member.has_applied_all):
            return False
        self._term = member.term
        self._next_offsets.clear()
        self._pending.clear()
        return True

    def stamp(self, term: int, drafts: Sequence[Draft], positions: Sequence[int]) -> None:
        """Give the messages their offsets and times: they are being written now."""
        if term != self._term:
            raise StoreError(f"messages of term {term} are written, but {self._term} was prepared")
        now_ms, at = time.time_ns() // 1_000_000, 0
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
                message_record.stamp(
                    body,
                    queue_offset=offset,
                    physical_offset=positions[at + number] + ENTRY_HEADER_SIZE,
                    store_timestamp=now_ms,
                )
            at = end

    def ended(self, drafts: Sequence[Draft], outcome: Outcome) -> None:
        """Tell everyone who waits for drafts."""
        for draft in drafts:
            assert isinstance(draft, RecordDraft)
            draft.ended(draft, outcome)

    def propose(self, draft: RecordDraft) -> None:
        """Propose records. Those that are too long for the log must be refused before.

        A draft with a place that the state would not take ends as refused. Once it was in the log,
        no member could apply the log any more, now or after a restart.
        """
        topics = self.state.tables.topics
        for place in draft.places or (draft.place,):
            refusal = topics.refusal_of_place(*place)
            if refusal is not None:
                logger.error(
                    "a record is not written, because no member could apply it: %s", refusal
                )
                draft.ended(draft, Outcome.REFUSED)
                return
        self._member.drafts.propose(draft)

    # -- topics ------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic's settings, also of one that is not applied yet."""
        found = self.state.tables.topics.by_name.get(name)
        if found is not None:
            return found.config
        return self._pending.get(name)

    def create_topic(self, config: TopicConfig) -> bytearray:
        """Return the change that creates a topic, to be proposed at once. Raises RefusedError."""
        known = self.state.tables.topics
        # The state's thread may apply a pending topic just now: it is then counted twice.
        pending = [each for name, each in self._pending.items() if name not in known.by_name]
        queues = sum(map(_queues_of, pending)) + _queues_of(config)
        refusal = known.refusal(config)
        if refusal is None and (
            len(known.by_name) + len(pending) + 1 + SYSTEM_TOPICS > topics.TOPICS_MAX
        ):
            refusal = f"the broker has {topics.TOPICS_MAX} topics, which is the limit"
        if refusal is None and known.queues + queues + SYSTEM_QUEUES > topics.QUEUES_MAX:
            refusal = f"the broker would have more than {topics.QUEUES_MAX} queues"
        if refusal is not None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, refusal)
        change = self.change(TopicSet(config=config))
        self._pending = {each.topic_name: each for each in pending}
        self._pending[config.topic_name] = config
        return change

    def forget_topic(self, name: str) -> None:
        """Forget a topic whose creation was refused: it is not in the log."""
        self._pending.pop(name, None)

    def change(self, record: AnyStateRecord) -> bytearray:
        """Return the record of a change of the state. Raises FormatError."""
        return state_record(record, time.time_ns() // 1_000_000, self._store_host)

    def _next_offset(self, place: Place) -> int:
        offset = self._next_offsets.get(place)
        if offset is None:
            offset = self.state.next_offset(*place)
        self._next_offsets[place] = offset + 1
        return offset


def _queues_of(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)
