"""Numbered messages that the log may have already, because a door sends them a second time.

The leader does not write a draft whose numbers the log has (`dledger_node.services.drafts`). Then
the messages are looked up by their numbers, and what the log lacks is written.
"""

from collections.abc import Sequence
from typing import Final

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.messages import delays
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq import message_record, topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord, MessageRecordError
from dledger_node.embedding import Member
from dledger_node.errors import StoreError
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Draft, Outcome

_WAYS: Final = {
    DLedgerResponseCode.NOT_LEADER: Way.NOT_STORED,
    DLedgerResponseCode.LEADER_TRANSFERRING: Way.NOT_STORED,
    DLedgerResponseCode.UNKNOWN_PRODUCER: Way.STRANGE_NUMBER,
    DLedgerResponseCode.SEQUENCE_TOO_OLD: Way.STRANGE_NUMBER,
    DLedgerResponseCode.SEQUENCE_TOO_NEW: Way.STRANGE_NUMBER,
}


def numbers_of(call: Call, count: int) -> Numbers | None:
    """Return the numbers of the messages that a request stores; None if it has none.

    Raises RefusedError if the request has numbers for another count of messages.
    """
    number = call.number
    if number is None:
        return None
    if number.messages != count:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL, f"{count} messages have {number.messages} numbers"
        )
    return Numbers(number.producer, range(number.sequence, number.sequence + count))


def way_of(draft: Draft, outcome: Outcome) -> Way | None:
    """Return what becomes of a request whose draft is not committed; None if it must be refused."""
    if outcome is Outcome.UNKNOWN:
        return Way.IN_DOUBT
    return None if draft.refusal is None else _WAYS.get(draft.refusal)


def is_repeated(draft: Draft) -> bool:
    """Return whether a draft was refused because the log has one of its numbers."""
    return draft.refusal is DLedgerResponseCode.SEQUENCES_NOT_NEW


def stored_records(member: Member, indexes: Sequence[int]) -> list[MessageRecord]:
    """Return the messages of committed entries; blocks.

    Raises LookupError if one of them cannot be read.
    """
    records = []
    for index in indexes:
        try:
            [entry], _ = member.read(index, index)
            records.append(message_record.decode(entry.body))
        except (IndexError, ValueError, StoreError, MessageRecordError) as error:
            raise LookupError(f"entry {index} cannot be read: {error}") from error
    return records


def queue_of(record: MessageRecord) -> int:
    """Return the queue that the answer to a send names: that to which a delayed message goes."""
    if record.topic == topic_names.SCHEDULE_TOPIC:
        return delays.delivered(record).queue_id
    return record.queue_id
