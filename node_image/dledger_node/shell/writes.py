"""What the core asks of the log, done in the store."""

import logging
from contextlib import AbstractContextManager

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.raft.ready import (
    Truncate,
    Write,
    WriteMembership,
    WriteNoop,
    WriteProposal,
    WritePushed,
    WriteSnapshot,
)
from dledger_node.services.idempotent import Entries
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)


def do(write: Write, store: LogStore, reading: AbstractContextManager[object]) -> None:
    """Do it, to the page cache; what the store raises ends this member.

    `reading` is held while the whole log is replaced: nobody else must read it then.
    """
    match write:
        case Truncate():
            store.truncate(write.first_index)
        case WriteNoop():
            store.append_noop(write.term)
        case WriteMembership():
            body = body_of(write.membership)
            store.append_bodies([body], write.term, [MEMBERSHIP_CHANNEL], disk.NOOP)
        case WriteProposal():
            assert isinstance(write.entries, Entries)
            bodies, channels, magic = write.entries
            store.append_bodies(bodies, write.term, channels, magic)
        case WritePushed():
            assert isinstance(write.entries, Block)
            store.append_block(
                write.entries, first_index=write.first_index, last_index=write.last_index
            )
        case WriteSnapshot():
            assert isinstance(write.entries, Block)
            logger.warning("the log begins anew with entry %d of its leader", write.first_index)
            with reading:
                store.replace(write.entries, write.membership)
