"""The messages of a pull: from the page cache in the event loop, or in a thread from the disk."""

from typing import Final, NamedTuple

from dledger_broker.door.reading.pull_requests import Pull
from dledger_broker.queues import cached_reads
from dledger_broker.queues.errors import READ_ERRORS, UnitRefusedError
from dledger_broker.queues.reader import Found, MessageReader, Wanted
from dledger_node.remoting.read_turns import ReadTurns

MESSAGES_MAX: Final = 1024
BYTES_MAX: Final = 256 * 1024


class LoopReads(NamedTuple):
    """How pulls are served in the event loop."""

    reader: MessageReader
    """A reader that does not block (`cached_reads`)."""
    turns: ReadTurns


class Pulled(NamedTuple):
    """What was found for a pull."""

    min_offset: int
    """The first offset of its queue."""
    found: Found | None
    """None if the wanted message was removed."""


def find(reader: MessageReader, pull: Pull, end_offset: int, *, has_all: bool) -> Pulled:
    """Find the messages of a pull. Blocks."""
    offset = pull.offset
    min_offset = reader.kept.min_offset(pull.queue, end_offset, has_all=has_all)
    if offset < min_offset:
        min_offset = reader.kept.kept_offset(pull.queue, end_offset, has_all=has_all)
        if offset < min_offset:
            return Pulled(min_offset, None)
    return Pulled(min_offset, reader.pull(pull.queue, offset, end_offset, wanted_by(pull)))


def find_cached(reader: MessageReader, pull: Pull, end_offset: int) -> Pulled | None:
    """Find the messages of a short pull (`is_short`) with a reader that does not block.

    Return None if a thread has to look: at what is not in the page cache or not sound at first
    sight, and for tags that few messages have, since a thread looks at more messages.
    """
    if not is_short(pull):
        return None
    wanted, offset = wanted_by(pull), pull.offset
    try:
        min_offset = reader.kept.min_offset(pull.queue, end_offset, has_all=False)
        if offset < min_offset:
            return None
        found = reader.pull_sound(pull.queue, offset, end_offset, wanted)
    except (UnitRefusedError, *READ_ERRORS):
        return None
    if found is None:
        return None
    is_much = wanted.codes is None or 2 * len(found.records) >= wanted.messages_max
    return Pulled(min_offset, found) if is_much or found.next_offset == end_offset else None


def is_short(pull: Pull) -> bool:
    """Return whether a pull may be served in the event loop."""
    return pull.fields.max_msg_nums <= cached_reads.UNITS_MAX


def wanted_by(pull: Pull) -> Wanted:
    """Return what a pull wants, within the limits of all pulls."""
    fields = pull.fields
    return Wanted(
        codes=pull.codes,
        messages_max=min(MESSAGES_MAX, max(1, fields.max_msg_nums)),
        bytes_max=min(BYTES_MAX, max(1, fields.max_msg_bytes or BYTES_MAX)),
    )
