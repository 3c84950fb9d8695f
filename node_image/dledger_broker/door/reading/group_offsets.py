"""Offsets of consumer groups, asked for and committed at the leader.

A leader that was deposed and has not noticed lacks commits that its successor has acknowledged. Its
answer would send a consumer back, or let a new one skip messages. So a query, too, needs a proof.
"""

from functools import partial

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.queue_offsets import LOOK_UP_S, NEVER_COMMITTED, QueueOffsets
from dledger_broker.leading.offset_commits import Done, OffsetCommits
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.offsets import (
    OffsetAnswerFields,
    QueryConsumerOffsetFields,
    UpdateConsumerOffsetFields,
)
from dledger_node.services.drafts import Outcome


class GroupOffsets:
    """Offsets of consumer groups (14 and 15), at the leader."""

    def __init__(self, commits: OffsetCommits, queues: QueueOffsets, proofs: Proofs) -> None:
        self._commits = commits
        self._queues = queues
        self._proofs = proofs

    def query(self, call: Call) -> None:
        """Answer with the offset where a group continues. Raises FormatError."""
        fields = call.fields(QueryConsumerOffsetFields)

        def decided(is_proved: bool) -> None:
            if is_proved:
                answered(call, partial(self._answer, call, fields))
            else:
                call.turned(Way.NOT_STORED)  # another leader may have the proof

        self._proofs.ask(call, decided, call.arrived_s + LOOK_UP_S)

    def _answer(self, call: Call, fields: QueryConsumerOffsetFields) -> None:
        """Answer a query with a proof.

        A group that never committed an offset of a young queue begins at 0, unless the client says
        that it does not want that.
        """
        offset = self._commits.newest(fields.consumer_group, fields.topic, fields.queue_id)
        if offset is not None:
            call.answer(ResponseCode.SUCCESS, OffsetAnswerFields(offset=offset))
        elif fields.set_zero_if_not_found is False:
            call.answer(ResponseCode.QUERY_NOT_FOUND, OffsetAnswerFields(), remark=NEVER_COMMITTED)
        else:
            self._queues.first_if_young(call, fields)

    def update(self, call: Call) -> None:
        """Commit an offset; answer once it is committed. Raises FormatError, RefusedError."""
        fields = call.fields(UpdateConsumerOffsetFields)
        key = fields.consumer_group, fields.topic, fields.queue_id
        if call.command.is_oneway:
            self._commits.commit(key, fields.commit_offset)
            call.answer(ResponseCode.SUCCESS)
        else:
            self._commits.commit(key, fields.commit_offset, _answering(call), call.arrived_s)


def _answering(call: Call) -> Done:
    def done(ended: Outcome | RefusedError) -> None:
        if isinstance(ended, RefusedError):
            call.refuse(ended)
        elif ended is Outcome.COMMITTED:
            call.answer(ResponseCode.SUCCESS)
        else:
            call.turned(Way.IN_DOUBT)

    return done
