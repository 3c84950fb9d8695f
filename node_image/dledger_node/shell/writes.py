"""The loop's `Store`: carries out the core's writes in the log store."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from dledger_formats.log import disk
from dledger_formats.log.memberships import MEMBERSHIP_CHANNEL
from dledger_node.raft.ready import (
    HardState,
    Truncate,
    Write,
    WriteMembership,
    WriteNoop,
    WriteProposal,
    WritePushed,
    WriteSnapshot,
)
from dledger_node.services.proposed import ProposedEntries
from dledger_node.shell.disk_waits import DiskWaits
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.block import Block
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.group_commit import GroupCommit

logger = logging.getLogger(__name__)


class StoreWriter:
    """Writes to the page cache; `GroupCommit` flushes.

    Work that waits for the disk runs in threads: saves of term and vote, and changes that remove
    entries. No flush begins meanwhile.
    """

    def __init__(
        self,
        store: LogStore,
        group_commit: GroupCommit,
        waits: DiskWaits,
        reading: AbstractContextManager[object],
    ) -> None:
        """`reading` is held while the whole log is replaced: no other thread must read it then."""
        self._store = store
        self._waits = waits
        self._reading = reading
        self._group_commit = group_commit

    def save_hard_state(self, hard_state: HardState) -> bool:
        """Begin to save term and vote in a thread; return False."""
        self._group_commit.pause()
        self._waits.saves.begin(hard_state)
        return False

    def begin_flush(self) -> None:
        """Flush the written entries, now or when the interval of AsyncFlush has passed."""
        self._group_commit.start()

    def written(self) -> tuple[int, int]:
        """Return index and term of the last entry."""
        return self._store.end_index, self._store.end_term

    def write(self, write: Write) -> bool:
        """Change the log, or begin to change it in a thread and return False.

        Raises StoreError, which stops this member.
        """
        store = self._store
        match write:
            case Truncate():
                self._begin_change(lambda: store.truncate(write.first_index))
                return False
            case WriteSnapshot():
                self._begin_change(lambda: self._replace_log(write))
                return False
            case WriteNoop():
                store.append_noop(write.term)
            case WriteMembership():
                body = body_of(write.membership)
                store.append_bodies([body], write.term, [MEMBERSHIP_CHANNEL], disk.NOOP)
            case WriteProposal():
                assert isinstance(write.entries, ProposedEntries)
                bodies, channels, magic, stamp = write.entries
                store.append_bodies(bodies, write.term, channels, magic, stamp)
            case WritePushed():
                assert isinstance(write.entries, Block)
                store.append_block(
                    write.entries, first_index=write.first_index, last_index=write.last_index
                )
        return True

    def _begin_change(self, change: Callable[[], None]) -> None:
        self._group_commit.pause()
        self._waits.changes.begin(change)

    def _replace_log(self, write: WriteSnapshot) -> None:
        assert isinstance(write.entries, Block)
        logger.warning(
            "the log is replaced and now begins with the leader's entry %d", write.first_index
        )
        with self._reading:
            self._store.replace(write.entries, write.membership)
