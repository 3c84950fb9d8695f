"""The checkpoints of a running store: what the last one said, and what the next one says.

A membership that a checkpoint calls committed is in its own file before the checkpoint is saved.
"""

import threading
from pathlib import Path

from dledger_node.errors import StoreError
from dledger_node.raft.membership import Membership
from dledger_node.store.derived.log_memberships import LogMemberships
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.small_files.checkpoint import Checkpoint, save_checkpoint


class Checkpoints:
    """One at a time: `lock` is held by whoever saves, or cuts what a checkpoint may speak of."""

    def __init__(
        self, folder: Path, log: LogWriter, memberships: LogMemberships, last: Checkpoint | None
    ) -> None:
        self.lock = threading.Lock()
        self.last = last
        self._folder = folder
        self._log = log
        self._memberships = memberships
        self._begin_index = 0  # never goes back, or what was removed would be missed

    @property
    def committed_index(self) -> int:
        """What the last one says; -1 without one."""
        return self.last.committed_index if self.last is not None else -1

    def next(self, end_index: int, committed_index: int) -> Checkpoint:
        """The one to save when the log is durable, and committed, up to here."""
        return Checkpoint(
            end_index=end_index,
            committed_index=committed_index,
            begin_index=max(self._log.begin_index, self._begin_index),
            membership_index=self._memberships.last_index(committed_index),
        )

    def save(self, checkpoint: Checkpoint) -> None:
        """Make it durable; blocks. After a StoreError or StoreFullError the last one stands."""
        self._memberships.save(checkpoint.committed_index)
        self._write(checkpoint)

    def lower(self, end_index: int) -> None:
        """Say that no more than this is durable, if the last one said more."""
        if self.last is not None and self.last.end_index > end_index:
            self.save(self.next(end_index, self.committed_index))

    def begin_at(self, first_index: int, durable_index: int) -> None:
        """Say that the log begins with an entry; all before it must be committed. StoreError."""
        if first_index < self._begin_index:
            return  # the log was replaced meanwhile
        if first_index > self.committed_index + 1:
            raise StoreError(f"{self._folder}: entries before {first_index} are not committed")
        with self.lock:
            self._begin_index = max(self._begin_index, first_index)
            self.save(self.next(durable_index, self.committed_index))

    def begin_anew(self, first_index: int, membership: Membership | None) -> None:
        """Say that nothing is durable of a log that begins with an entry, and has this membership
        before it.
        """
        self._begin_index = first_index
        told_index = self._memberships.begin_anew(first_index, membership, self.committed_index)
        self._write(
            Checkpoint(
                end_index=-1,
                committed_index=-1,
                begin_index=first_index,
                membership_index=told_index,
            )
        )

    def _write(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self._folder, checkpoint)
        self.last = checkpoint
