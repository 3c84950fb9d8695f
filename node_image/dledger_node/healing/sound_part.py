"""Find the part of a damaged log that can be kept."""

from dataclasses import dataclass

from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.entry_walk import Cursor, EntryWalk, before_first
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.recovery import forget_removed, judge
from dledger_node.store.small_files.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundPart:
    """The verified part of a log, up to the first damage."""

    is_whole: bool
    """Whether the log is undamaged, as `recovery.judge` decides."""
    end: Cursor
    """The place after the last sound entry."""
    kept_pos: int
    """The end of the last segment that is sound as a whole."""
    kept_end: Cursor
    """The place after that segment's last entry."""


def sound_part(files: LogFiles, checkpoint: Checkpoint | None) -> SoundPart:
    """Read a log and find its sound part. Changes nothing on disk, and does not raise on damage.

    `files` lose the segments before the log's beginning, if a crash interrupted their removal.
    """
    forget_removed(files, checkpoint)
    start = kept_end = Cursor(pos=0, index=0, term=0, chain_crc=0)
    ends: dict[int, Cursor] = {}
    try:
        start = kept_end = before_first(files, checkpoint)
        walk = EntryWalk(files, start, [])
    except StoreDamagedError:
        return SoundPart(is_whole=False, end=start, kept_pos=0, kept_end=kept_end)
    try:
        for _ in walk:
            ends[files.data.file_at(walk.end.pos - 1).end] = walk.end
        judge(files, checkpoint, walk)
        is_whole = True
    except StoreDamagedError:
        is_whole = False
    kept_pos = max((end for end in ends if end <= walk.stop_pos), default=0)
    return SoundPart(
        is_whole=is_whole,
        end=walk.end,
        kept_pos=kept_pos,
        kept_end=ends.get(kept_pos, kept_end),
    )
