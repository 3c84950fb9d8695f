"""The checkpoints of a running store: the last one saved, and the next one.

Before a checkpoint is saved, the memberships that it covers and the removal that explains its
beginning are saved to their own files. On a full volume, the ballast is spent on a checkpoint that
must be saved before the log is cut or replaced, or before its front is removed, which makes room.
"""

import threading
import time
from pathlib import Path

from dledger_formats.http.retention import RemovalRule
from dledger_node.errors import StoreError
from dledger_node.raft.membership import Membership
from dledger_node.store.derived.stored_memberships import StoredMemberships
from dledger_node.store.log.files import Beginning
from dledger_node.store.log.removals import Grounds, Removals
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.small_files import ballast
from dledger_node.store.small_files.checkpoint import Checkpoint, save_checkpoint


class Checkpoints:
    """Saves the checkpoints of one log.

    A thread that saves one, or truncates the log, holds `lock`, and reads the durable index under
    it: an index from before a truncation would make the next start report a sound log as damaged.
    """

    def __init__(
        self,
        folder: Path,
        writer: LogWriter,
        memberships: StoredMemberships,
        last: Checkpoint | None,
    ) -> None:
        self.lock = threading.Lock()
        self.last = last
        self._folder = folder
        self._writer = writer
        self._memberships = memberships
        self.removals = Removals(folder)
        # Never decreases, or recovery would report removed segments as missing.
        self._begin = Beginning(0, None)

    @property
    def committed_index(self) -> int:
        """Committed index of the last checkpoint; -1 without a checkpoint."""
        return self.last.committed_index if self.last is not None else -1

    def next(self, end_index: int, committed_index: int) -> Checkpoint:
        """Return the checkpoint of a log with this durable and this committed index."""
        begin = max(self._writer.begin, self._begin, key=lambda one: one.first_index)
        return Checkpoint(
            end_index=end_index,
            committed_index=committed_index,
            begin_index=begin.first_index,
            begin_chain_crc=begin.chain_crc,
            membership_index=self._memberships.last_index(committed_index),
        )

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint durably; blocks.

        Raises StoreError or StoreFullError; the last checkpoint then stays in place.
        """
        self._memberships.save(checkpoint.committed_index)
        self._write(checkpoint)

    def lower(self, end_index: int) -> None:
        """Lower the durable index, if the last checkpoint has a higher one."""
        if self.last is not None and self.last.end_index > end_index:
            self._save_now(self.next(end_index, self.committed_index))

    def begin_at(self, begin: Beginning, grounds: Grounds) -> None:
        """Save which entry the log begins with, and why.

        The durable index stays that of the last checkpoint: the index units of later entries may
        not be durable. Raises StoreError if an earlier entry is not committed.
        """
        first_index = begin.first_index
        if first_index < self._begin.first_index:
            return  # a later beginning is already saved, perhaps that of a leader's log
        if first_index > self.committed_index + 1:
            raise StoreError(f"{self._folder}: entries before {first_index} are not committed")
        self.removals.record(first_index, grounds)
        self._begin = begin
        end_index = self.last.end_index if self.last is not None else -1
        self._save_now(self.next(end_index, self.committed_index))

    def restart_at(self, begin: Beginning, membership: Membership | None) -> None:
        """Save which entry the log begins with, and that no entry of it is durable yet.

        `membership` is the membership before that entry.
        """
        self._begin, first_index = begin, begin.first_index
        now_ms = time.time_ns() // 1_000_000
        self.removals.record(
            first_index, Grounds(rule=RemovalRule.LEADER_LOG, removed_at_ms=now_ms)
        )
        committed_index = self.committed_index
        saved_index = ballast.spend(
            self._folder,
            lambda: self._memberships.restart_at(first_index, membership, committed_index),
        )
        checkpoint = Checkpoint(
            end_index=-1,
            committed_index=-1,
            begin_index=first_index,
            begin_chain_crc=begin.chain_crc,
            membership_index=saved_index,
        )
        ballast.spend(self._folder, lambda: self._write(checkpoint))

    def _save_now(self, checkpoint: Checkpoint) -> None:
        ballast.spend(self._folder, lambda: self.save(checkpoint))

    def _write(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self._folder, checkpoint)
        self.last = checkpoint
