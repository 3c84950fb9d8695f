"""What of a damaged log could be kept."""

from dataclasses import dataclass

from dledger_node.errors import StoreDamagedError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.recovery import Cursor, Walk, before_first, judge
from dledger_node.store.small_files.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundPart:
    """What of a log can be vouched for, by reading all of it up to the first damage."""

    is_whole: bool
    """All of it, as `examine` judges."""
    end: Cursor
    """Behind the last sound entry."""
    kept_pos: int
    """The end of the last segment that is sound from its first byte to its last."""
    kept_end: Cursor
    """Behind that segment's last entry."""


def sound_part(files: LogFiles, checkpoint: Checkpoint | None) -> SoundPart:
    """Find out how much of a log that is damaged could be kept; nothing raises, or is changed."""
    start = kept_end = Cursor(pos=0, index=0, term=0, chain_crc=0)
    ends: dict[int, Cursor] = {}
    try:
        start = kept_end = before_first(files, checkpoint)
        walk = Walk(files, start, [])
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
