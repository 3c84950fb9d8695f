"""The memberships of a log: found at a start, updated by appends and truncations, and saved.

The thread that writes entries also notes them here. Committed memberships are saved before the
checkpoint that covers them. So a start reads only the entries after the checkpoint's committed
index, and a segment may be removed once the checkpoint covers it: by then the file holds the
membership before the first remaining entry.
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
"""Bytes of the log that are read at a time."""


class StoredMemberships:
    """The membership entries of the log in a folder."""

    def __init__(self, folder: Path, files: LogFiles, writer: LogWriter) -> None:
        self._folder = folder
        self._files = files
        self._writer = writer
        # Invariant: indexes strictly increase. The tuple is replaced, never changed, so any thread
        # may use it.
        self._entries: tuple[MembershipEntry, ...] = ()
        # The content of the file; None if it must be written again.
        self._saved: tuple[MembershipEntry, ...] | None = ()

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Read the memberships from their file and the log; blocks.

        Raises StoreDamagedError if a membership is lost.
        """
        begin_index, end_index = self._writer.begin_index, self._writer.end_index
        saved_index = checkpoint.membership_index if checkpoint else None
        first_index = begin_index
        if checkpoint is not None and saved_index is not None:
            first_index = max(begin_index, checkpoint.committed_index + 1)
        known = self._saved = self._load(saved_index)
        kept = known[: _count(known, min(first_index, end_index + 1))]
        self._entries = (*kept, *self._read(first_index))

    @property
    def base(self) -> Membership | None:
        """The membership before the log's first entry; None for the configured first voters."""
        count = _count(self._entries, self._writer.begin_index)
        return self._entries[count - 1].membership if count else None

    @property
    def entries(self) -> tuple[MembershipEntry, ...]:
        """The membership entries that the log holds."""
        return self._entries[_count(self._entries, self._writer.begin_index) :]

    def note_appends(
        self, first_index: int, magic: int, channels: Sequence[int], bodies: Sequence[Buffer]
    ) -> None:
        """Note a batch that this leader wrote; a membership entry is always alone in its batch."""
        if memberships.is_membership(magic, channels[0]):
            self._entries += (MembershipEntry(first_index, membership_of(bodies[0])),)

    def note_block(self, block: Block, first_index: int) -> None:
        """Note the written entries of a block from `first_index` on."""
        if block.memberships:
            fresh = (entry for entry in block.memberships if entry.index >= first_index)
            self._entries += tuple(fresh)

    def cut(self, first_index: int) -> None:
        """Forget entries from `first_index` on, which were cut from the log."""
        self._entries = self._entries[: _count(self._entries, first_index)]

    def last_index(self, committed_index: int) -> int:
        """Return the index of the last membership entry that a checkpoint at this index covers; -1
        for none.
        """
        entries = self._covered_by(committed_index)
        return entries[-1].index if entries else -1

    def save(self, committed_index: int) -> None:
        """Save the entries that a checkpoint at this index covers, unless the file has them.

        Blocks; any thread may call. Raises StoreError, StoreFullError.
        """
        entries = self._covered_by(committed_index)
        if entries != self._saved:
            memberships_file.save(self._folder, entries)
            self._saved = entries

    def restart_at(self, first_index: int, membership: Membership | None, committed: int) -> int:
        """Save the membership before a leader's first entry, before its log replaces this one.

        Returns the membership index for the checkpoint. The file also keeps the memberships of this
        log, which a crash may leave in place. Raises StoreDamagedError if the leader contradicts a
        membership that is committed here.
        """
        here = self._covered_by(committed)
        before, after = here[: _count(here, first_index)], here[_count(here, first_index) :]
        if before and membership is None:
            raise StoreDamagedError(
                f"{self._folder}: the leader reports no membership change before entry "
                f"{first_index}, but entry {before[-1].index} of this log is one: the logs differ. "
                "Audit the group",
                Damage.DIVERGED,
                before[-1].index,
            )
        if membership is not None and not (before and before[-1].membership == membership):
            before += (MembershipEntry(first_index - 1, membership),)
        memberships_file.save(self._folder, before + after)
        self._entries, self._saved = before[-1:], None
        return self._entries[-1].index if self._entries else -1

    def _covered_by(self, committed_index: int) -> tuple[MembershipEntry, ...]:
        """Return the committed entries, from the last one before the log's first entry on."""
        entries, begin_index = self._entries, self._writer.begin_index
        first = max(0, _count(entries, begin_index) - 1)
        return entries[first : _count(entries, max(committed_index + 1, begin_index))]

    def _load(self, saved_index: int | None) -> tuple[MembershipEntry, ...]:
        """Read the file if it is needed; it must hold the entry that the checkpoint names."""
        must_exist = saved_index is not None and saved_index >= 0
        if not must_exist and self._writer.begin_index == 0:
            return ()
        entries = memberships_file.load(self._folder)
        if must_exist and all(entry.index != saved_index for entry in entries):
            raise StoreDamagedError(
                f"{self._folder / memberships_file.FILE_NAME} lacks the membership of entry "
                f"{saved_index}, which was saved according to the checkpoint: the file was lost or "
                "is an old copy. Nothing was changed. Restore the file or replace the member",
                Damage.MEMBERSHIPS,
            )
        return entries

    def _read(self, first_index: int) -> Iterator[MembershipEntry]:
        """Yield the membership entries from `first_index` to the end of the log."""
        index, end_index = first_index, self._writer.end_index
        while index <= end_index:
            try:
                last_index = self._files.last_within(index, end_index, SCAN_BYTES)
                found = list(self._files.channels(index, last_index))
            except IndexError:
                raise StoreDamagedError(
                    f"{self._folder}: the index names places outside the data files for entries "
                    f"from {index} on. To rebuild the index files from the data, stop this member, "
                    f"empty {self._files.index.folder} and start it again",
                    Damage.WRONG_INDEX,
                    index,
                ) from None
            for entry in found:
                if memberships.is_membership(entry.magic, entry.channel):
                    yield self._read_one(entry.first_index)
            index = last_index + 1

    def _read_one(self, index: int) -> MembershipEntry:
        _, body = self._files.checked_entry(index, self._writer.begin)
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
    """Count the entries before an index."""
    return bisect_left(entries, first_index, key=_index)


def _index(entry: MembershipEntry) -> int:
    return entry.index
