"""The memberships of a log: found at a start, kept true while the log grows and is cut, saved.

What is written passes here, on the thread that writes. What is committed is saved before the
checkpoint that says so. So a start reads only entries behind the checkpoint's committed index, and
a segment can go from the front as soon as the checkpoint calls it committed: what holds before the
first entry that is left is in the file by then.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dledger_formats.json_objects import FormatError
from dledger_formats.log import memberships
from dledger_formats.log.disk import Buffer
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.derived import memberships_file
from dledger_node.store.derived.membership_bodies import membership_of
from dledger_node.store.log.block import Block
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.writer import LogWriter
from dledger_node.store.small_files.checkpoint import Checkpoint

SCAN_BYTES: Final = 4 << 20
"""What is read at a time."""


class LogMemberships:
    """What `LogStore` and its callers know of memberships."""

    def __init__(self, folder: Path, files: LogFiles, log: LogWriter) -> None:
        self._folder = folder
        self._files = files
        self._log = log
        # Invariant: the indexes are strictly rising. Whoever holds the tuple may use it in any
        # thread.
        self._entries: tuple[MembershipEntry, ...] = ()
        # What the file holds; None when it must be written anew.
        self._saved: tuple[MembershipEntry, ...] | None = ()

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Find what the log says; blocks. StoreDamagedError when it cannot be known."""
        begin_index, end_index = self._log.begin_index, self._log.end_index
        told_index = checkpoint.membership_index if checkpoint else None
        first_index = begin_index
        if checkpoint is not None and told_index is not None:
            first_index = max(begin_index, checkpoint.committed_index + 1)
        known = self._saved = self._load(told_index)
        kept = known[: _count(known, min(first_index, end_index + 1))]
        self._entries = (*kept, *self._read(first_index))

    @property
    def base(self) -> Membership | None:
        """What holds before the log's first entry; None if no entry has said it."""
        count = _count(self._entries, self._log.begin_index)
        return self._entries[count - 1].membership if count else None

    @property
    def entries(self) -> tuple[MembershipEntry, ...]:
        """Those that the log holds."""
        return self._entries[_count(self._entries, self._log.begin_index) :]

    def note_appends(
        self, first_index: int, magic: int, channels: Sequence[int], bodies: Sequence[Buffer]
    ) -> None:
        """Note a leader's batch, which is written; one with a membership has nothing else."""
        if memberships.is_membership(magic, channels[0]):
            self._entries += (MembershipEntry(first_index, membership_of(bodies[0])),)

    def note_block(self, block: Block, first_index: int) -> None:
        """Note a block's entries from `first_index` on, which are written."""
        if block.memberships:
            fresh = (entry for entry in block.memberships if entry.index >= first_index)
            self._entries += tuple(fresh)

    def cut(self, first_index: int) -> None:
        """Forget what was cut from the log."""
        self._entries = self._entries[: _count(self._entries, first_index)]

    def last_index(self, committed_index: int) -> int:
        """The last membership entry that a checkpoint at this index answers for; -1 for none."""
        entries = self._answered_for(committed_index)
        return entries[-1].index if entries else -1

    def save(self, committed_index: int) -> None:
        """Have durable what a checkpoint at this index answers for; nearly always it is already.

        Blocks, and may be called in any thread. StoreError, StoreFullError.
        """
        entries = self._answered_for(committed_index)
        if entries != self._saved:
            memberships_file.save(self._folder, entries)
            self._saved = entries

    def begin_anew(self, first_index: int, membership: Membership | None, committed: int) -> int:
        """Have durable what holds before a leader's first entry, as it says, before its log
        replaces this one; returns the index for the checkpoint.

        What this log needs stays in the file, until it is surely gone: a crash may leave it.
        StoreDamagedError when the leader contradicts what is committed here.
        """
        here = self._answered_for(committed)
        before, after = here[: _count(here, first_index)], here[_count(here, first_index) :]
        if before and membership is None:
            raise StoreDamagedError(
                f"{self._folder}: the leader says that nobody was added or removed before entry "
                f"{first_index}, and here entry {before[-1].index} did: the logs differ. Audit the "
                "group",
                Damage.DIVERGED,
                before[-1].index,
            )
        if membership is not None and not (before and before[-1].membership == membership):
            before += (MembershipEntry(first_index - 1, membership),)
        memberships_file.save(self._folder, before + after)
        self._entries, self._saved = before[-1:], None
        return self._entries[-1].index if self._entries else -1

    def _answered_for(self, committed_index: int) -> tuple[MembershipEntry, ...]:
        """What is committed, from the last before the log's first entry on."""
        entries, begin_index = self._entries, self._log.begin_index
        first = max(0, _count(entries, begin_index) - 1)
        return entries[first : _count(entries, max(committed_index + 1, begin_index))]

    def _load(self, told_index: int | None) -> tuple[MembershipEntry, ...]:
        """What the file says, if it is needed; it must then hold what the checkpoint tells."""
        is_told = told_index is not None and told_index >= 0
        if not is_told and self._log.begin_index == 0:
            return ()
        entries = memberships_file.load(self._folder)
        if is_told and all(entry.index != told_index for entry in entries):
            raise StoreDamagedError(
                f"{self._folder / memberships_file.FILE_NAME} lacks the membership of entry "
                f"{told_index}, which the checkpoint says was saved: it was lost, or is an old "
                "copy. Nothing was changed. Restore the file, or replace the member",
                Damage.MEMBERSHIPS,
            )
        return entries

    def _read(self, first_index: int) -> Iterator[MembershipEntry]:
        """Those of the entries from here to the log's end."""
        index, end_index = first_index, self._log.end_index
        while index <= end_index:
            try:
                last_index = self._files.last_within(index, end_index, SCAN_BYTES)
                found = list(self._files.channels(index, last_index))
            except IndexError:
                raise StoreDamagedError(
                    f"{self._folder}: the index of entries from {index} on names places where no "
                    f"file is. To have the index files made anew from the data, stop this member "
                    f"and empty {self._files.index.folder}",
                    Damage.WRONG_INDEX,
                    index,
                ) from None
            for entry in found:
                if memberships.is_membership(entry.magic, entry.channel):
                    yield self._read_one(entry.index)
            index = last_index + 1

    def _read_one(self, index: int) -> MembershipEntry:
        _, body = self._files.checked_entry(index, self._log.begin_index)
        try:
            return MembershipEntry(index, membership_of(body))
        except FormatError as error:
            raise StoreDamagedError(
                f"{self._folder}: entry {index} changes the membership in a way that this version "
                f"cannot read: {error}. Start the version that wrote it",
                Damage.UNKNOWN_FORMAT,
                index,
            ) from None


def _count(entries: Sequence[MembershipEntry], first_index: int) -> int:
    """How many of them lie before an index."""
    return bisect_left(entries, first_index, key=_index)


def _index(entry: MembershipEntry) -> int:
    return entry.index
