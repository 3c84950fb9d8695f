"""Mend a damaged range in place: write its original bytes again, from a peer's log.

A range is mended only if all of its entries are committed by this member's own checkpoint, and if
sound entries before and after it show what belongs there. Entries of one range may come from
several peers, and from this member itself, each from one with a sound copy. They are accepted if

- every entry has the index and the position that follow from the entry before, its term does not
  fall, and it passes the checksum of its body;
- every chain checksum follows from the one before, from the sound entry before the range through to
  the sound entry after it. An entry without checksums, as Java writes them, proves nothing, so a
  range that holds one is not mended. Where retention has removed the entries before, the checkpoint
  keeps the chain checksum. Without it, two members must have the same header of the first entry.

Why the member loses nothing, and keeps its vote: a committed entry is the same on all members, and
peers give committed entries only. So the bytes are those that this member wrote and flushed itself.
A peer need not know that they are committed, which it learns from leaders only: while most members
stay out of service with damage, there is no leader. So the member sends such a peer the headers of
some sound entries after the range, which it knows to be committed. A peer with one of these entries
has the same entries before it.

What the member promised is in its term, its vote, the end of its log and the entries above the
committed index. None of these is touched, and none may be damaged: otherwise `repair` makes the
member join. After mending, the disk is as it was before the damage, so a mended member is like one
that was away for a moment. A peer that lies, has rotted, or belongs to another group fails the
checks, and its bytes are not written.

Everything is verified before the first byte is written. A crash while bytes are written leaves
damage in the same range, which the checkpoint proves, and which is mended again. The bytes are read
back from the disk before the range counts as mended.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, DamagedRecordError
from dledger_node.errors import NotYetCommittedError, StoreError
from dledger_node.healing.file_writing import FileWriter, Guard
from dledger_node.healing.peer_bytes import (
    CHUNKS_KEPT,
    OWN,
    InformedPeer,
    NoPeerError,
    OwnBytes,
    Peer,
    PeerBytes,
)
from dledger_node.shortages import is_passing
from dledger_node.store.log.damaged_ranges import (
    DamagedRange,
    LogShape,
    beginning,
    closing,
    headers_after,
    longer,
)
from dledger_node.store.log.entry_walk import EntryWalk
from dledger_node.store.log.files import LogFiles
from dledger_node.store.segments.patched_segments import Patch
from dledger_node.store.small_files.checkpoint import Checkpoint

AGREEING_MIN: Final = 2
"""Members that must have the same header of an entry if nothing is known of the chain before it."""
NO_CHECKSUMS: Final = "entry %d has no checksums"


class CannotMendError(Exception):
    """The range was not mended; nothing was written, or the member finds the damage again."""

    def __init__(self, message: str, *, may_succeed_later: bool = False) -> None:
        super().__init__(message)
        self.may_succeed_later = may_succeed_later
        """Whether a peer that gave no bytes may give them later, or this process lacked descriptors
        or memory.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A range that is sound again."""

    range: DamagedRange
    sources: tuple[str, ...]
    """The peers whose bytes were written."""
    written_bytes: int

    def __str__(self) -> str:
        if not self.sources:
            return f"{self.range}: it reads as sound again, and nothing was written"
        return (
            f"{self.range} in place: {self.written_bytes} bytes from {' and '.join(self.sources)}"
        )


class MendedTotals:
    """The sums of what was mended since this process started, for the metrics."""

    def __init__(self) -> None:
        self.ranges = 0
        self.entries = 0
        self.bytes = 0

    def add(self, mended: Mended) -> None:
        """Count a range."""
        self.ranges += 1
        self.entries += mended.range.entry_count
        self.bytes += mended.written_bytes


class Mender:
    """Mends ranges of one log, which may be open and written to at its end."""

    def __init__(
        self,
        shape: LogShape,
        peers: Mapping[str, Peer],
        *,
        create_files: bool,
        guard: Guard = lambda: contextlib.nullcontext(True),
        chunks_kept: int = CHUNKS_KEPT,
    ) -> None:
        """Prepare to mend; `create_files` says whether a missing file may be created.

        It may not in a running store, where retention may have removed the file. `guard` is held
        while bytes are written; it yields whether the log is still the one of the damaged ranges.
        """
        self._shape = shape
        self._peers = peers
        self._file_writer = FileWriter(
            shape.folder, shape.segment_size_bytes, create_files=create_files, guard=guard
        )
        self._chunks_kept = chunks_kept

    def mend(self, damaged: DamagedRange, checkpoint: Checkpoint) -> Mended:
        """Fetch, verify and write one range; blocks. Raises CannotMendError."""
        try:
            return self._mend(damaged, checkpoint)
        except (IndexError, DamagedRecordError, StoreError) as error:  # the files end too early
            raise CannotMendError(
                f"{damaged} cannot be verified: {error}", may_succeed_later=is_passing(error)
            ) from error

    def _mend(self, damaged: DamagedRange, checkpoint: Checkpoint) -> Mended:
        while True:
            size = self._shape.segment_size_bytes
            headers = cache(partial(self._headers_after, damaged, checkpoint))
            givers: dict[str, Peer] = {
                peer_id: InformedPeer(peer, headers) for peer_id, peer in self._peers.items()
            }
            givers[OWN] = OwnBytes(self._shape.folder / disk.DATA_FOLDER)
            fetched = PeerBytes(givers, damaged.start.pos, damaged.end_pos, size, self._chunks_kept)
            try:
                if damaged.start.chain_crc is None:
                    _take_first(fetched, damaged, self._agreed_header(damaged, givers))
                if self._verify(damaged, fetched, checkpoint):
                    break
            except NoPeerError as error:
                raise CannotMendError(
                    f"no other member gives sound bytes of {damaged}: {error}",
                    may_succeed_later=error.may_give_later,
                ) from None
            following = self._longer(damaged, checkpoint)
            if following is None:
                raise CannotMendError(f"no sound committed entry follows {damaged}")
            damaged = following
        return self._write(damaged, fetched)

    def _verify(self, damaged: DamagedRange, fetched: PeerBytes, checkpoint: Checkpoint) -> bool:
        """Find a giver of sound bytes for each entry, and return whether the range is proved.

        Returns False if the entry after the range does not follow, so that it is damaged too.
        Raises NoPeerError, CannotMendError. The loop ends, since each round proves entries or
        rejects one more giver of an entry.
        """
        _, end = beginning(self._shape, checkpoint)
        patch = Patch(damaged.start.pos, damaged.end_pos, fetched.read)
        with closing(self._shape.read(self._first_pos(damaged), end, patch)) as files:
            proved = damaged.start
            while True:
                walk = EntryWalk(files, proved, [])
                for first_index, units in walk:
                    uncovered = _first_uncovered(files, first_index, units, damaged)
                    if uncovered is not None:
                        pos, index = uncovered
                        if index == damaged.end_index:  # this member's own sound entry
                            raise CannotMendError(
                                f"{damaged} cannot be verified: {NO_CHECKSUMS % index}"
                            )
                        fetched.reject(pos, NO_CHECKSUMS % index)
                        break
                    proved = walk.end
                    fetched.keep(min(proved.pos, damaged.end_pos))
                    if proved.index > damaged.end_index:
                        return True
                else:
                    if proved.index >= damaged.end_index or walk.stop_pos >= damaged.end_pos:
                        return False
                    fetched.reject(walk.stop_pos)

    def _headers_after(self, damaged: DamagedRange, checkpoint: Checkpoint) -> bytes:
        """Return headers to send to a peer; empty if they cannot be read."""
        _, end = beginning(self._shape, checkpoint)
        with (
            contextlib.suppress(IndexError, DamagedRecordError, StoreError),
            closing(self._shape.read(self._first_pos(damaged), end)) as files,
        ):
            return headers_after(files, damaged, checkpoint.committed_index)
        return b""

    def _agreed_header(self, damaged: DamagedRange, givers: Mapping[str, Peer]) -> bytes:
        """Return the header of the range's first entry, on which two members agree.

        Where retention has removed the log's front, nothing is known of the chain before that
        entry, so no checksum proves its header. Raises CannotMendError.
        """
        at = damaged.start.pos % self._shape.segment_size_bytes
        name = disk.file_name(damaged.start.pos - at)
        votes, may_give_later = Counter[bytes](), False
        for giver in givers.values():
            try:
                votes[giver.stored(name, at, ENTRY_HEADER_SIZE)] += 1
            except (NotYetCommittedError, OSError):
                may_give_later = True
            except LookupError:
                continue
        header, count = max(votes.items(), key=itemgetter(1), default=(b"", 0))
        if count < AGREEING_MIN:
            raise CannotMendError(
                f"no two members have the same header of entry {damaged.start.index}, which begins "
                f"the log, so {damaged} cannot be verified",
                may_succeed_later=may_give_later,
            )
        return header

    def _first_pos(self, damaged: DamagedRange) -> int:
        """Return where the segment of the range's first byte begins."""
        return damaged.start.pos - damaged.start.pos % self._shape.segment_size_bytes

    def _longer(self, damaged: DamagedRange, checkpoint: Checkpoint) -> DamagedRange | None:
        _, end = beginning(self._shape, checkpoint)
        with closing(self._shape.read(self._first_pos(damaged), end)) as files:
            return longer(files, damaged, checkpoint.committed_index)

    def _write(self, damaged: DamagedRange, fetched: PeerBytes) -> Mended:
        size = self._shape.segment_size_bytes
        written_bytes, sources = 0, set[str]()
        try:
            for start in range(self._first_pos(damaged), damaged.end_pos, size):
                low, high = max(start, damaged.start.pos), min(start + size, damaged.end_pos)
                pieces = [one for one in fetched.pieces(low, high) if one.peer_id != OWN]
                if pieces:
                    self._file_writer.write(start, pieces, fetched)
                    written_bytes += sum(one.end - one.start for one in pieces)
                    sources |= {one.peer_id for one in pieces}
        except NoPeerError as error:
            raise CannotMendError(
                f"{damaged} cannot be fetched again: {error}", may_succeed_later=True
            ) from None
        except OSError as error:
            raise CannotMendError(
                f"{damaged} cannot be written: {error}", may_succeed_later=True
            ) from error
        return Mended(range=damaged, sources=tuple(sorted(sources)), written_bytes=written_bytes)


def _take_first(fetched: PeerBytes, damaged: DamagedRange, header: bytes) -> None:
    """Take the first entry from a peer that has it with this header. Raises NoPeerError."""
    pos = damaged.start.pos
    while fetched.read(pos, pos + ENTRY_HEADER_SIZE) != header:
        fetched.reject(pos, "its first entry has another header")


def _first_uncovered(
    files: LogFiles, first_index: int, units: bytes, damaged: DamagedRange
) -> tuple[int, int] | None:
    """Return position and index of the first entry that has no checksum; None if all have one.

    Only the entries of the range and the one after it count. Java wrote such an entry, or its
    checksum is damaged.
    """
    for number in range(len(units) // INDEX_UNIT_SIZE):
        if first_index + number > damaged.end_index:
            break
        pos = disk.unpack_index_unit(units, number * INDEX_UNIT_SIZE).pos
        file = files.data.file_at(pos)
        header = disk.unpack_header(file.read(pos - file.start, ENTRY_HEADER_SIZE), 0)
        if header.chain_crc == 0 or (header.body_crc == 0 and header.body_size):
            return pos, header.index
    return None
