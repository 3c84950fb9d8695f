"""The messages of a pull: from the page cache in the event loop, or in a thread from the disk."""

from typing import Final, NamedTuple

from dledger_broker.door.reading.pull_requests import Pull
from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import cached_reads
from dledger_broker.queues.errors import UnitRefusedError, UnreadableError
from dledger_broker.queues.reader import Found, MessageReader

MESSAGES_MAX: Final = 1024
BYTES_MAX: Final = 256 * 1024


class Pulled(NamedTuple):
    """What there is for a pull."""

    min_offset: int
    """The first offset of its queue."""
    found: Found | None
    """None if the wanted message was removed."""


def find(reader: MessageReader, pull: Pull, end_offset: int, *, has_all: bool) -> Pulled:
    """Find the messages of a pull. Blocks."""
    offset = pull.fields.queue_offset
    min_offset = reader.kept.min_offset(pull.queue, end_offset, has_all=has_all)
    if offset < min_offset:
        min_offset = reader.kept.kept_offset(pull.queue, end_offset, has_all=has_all)
        if offset < min_offset:
            return Pulled(min_offset, None)
    return Pulled(min_offset, _messages(reader, pull, end_offset))


def find_cached(reader: MessageReader, pull: Pull, end_offset: int) -> Pulled | None:
    """Find the messages of a short pull (`is_short`) with a reader that does not block.

    None unless there are messages, and nothing is to be said about any of them: a thread looks. So
    it does for tags that few messages have, since it looks at more of them.
    """
    try:
        pulled = find(reader, pull, end_offset, has_all=False)
    except (UnitRefusedError, UnreadableError, QueueFilesError, OSError):
        return None
    found = pulled.found
    if found is None or not found.is_complete:
        return None
    is_much = pull.codes is None or 2 * len(found.records) >= pull.fields.max_msg_nums
    return pulled if is_much or found.next_offset == end_offset else None


def is_short(pull: Pull) -> bool:
    """Tell whether a pull may be served in the event loop."""
    return pull.fields.max_msg_nums <= cached_reads.UNITS_MAX


def _messages(reader: MessageReader, pull: Pull, end_offset: int) -> Found:
    fields = pull.fields
    return reader.pull(
        pull.queue,
        fields.queue_offset,
        end_offset,
        messages_max=min(MESSAGES_MAX, max(1, fields.max_msg_nums)),
        bytes_max=min(BYTES_MAX, max(1, fields.max_msg_bytes or BYTES_MAX)),
        codes=pull.codes,
    )
