"""How far the log is known to be sound, in DLedger's `checkpoint` (written by Java up to 0.3.2).

`endIndex` is our durable end: everything up to it was flushed, so that what is missing there was
not torn by a crash but lost. `committedIndex` is what the group had committed, as far as it is
durable here. `beginIndex` is ours alone, and Java ignores it: a log that begins later lost segments
that nobody removed on purpose. So is `membershipIndex`: the file `memberships` must hold that one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.store.segments.segment import NO_ROOM
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
    write_properties,
)

FILE_NAME: Final = "checkpoint"
_COMMITTED: Final = "committedIndex"
_END: Final = "endIndex"
_BEGIN: Final = "beginIndex"
_MEMBERSHIP: Final = "membershipIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Indexes of the log; -1 for none. Invariant: committed_index <= end_index."""

    end_index: int
    committed_index: int
    begin_index: int | None = None
    """None when Java wrote it."""
    membership_index: int | None = None
    """The last membership entry up to committed_index, or before the log's first; -1 when there
    is none. None when Java or an earlier version wrote it.
    """


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read it; None when there is none, or none that can be trusted."""
    path = folder / FILE_NAME
    try:
        values = read_properties(path, (_COMMITTED, _END), optional=(_BEGIN, _MEMBERSHIP))
        if values is None:
            return None
        end_index = parse_number(path, values, _END, -1)
        committed_index = parse_number(path, values, _COMMITTED, -1)
        begin_index = parse_number(path, values, _BEGIN, 0) if _BEGIN in values else None
        told = _MEMBERSHIP in values
        membership_index = parse_number(path, values, _MEMBERSHIP, -1) if told else None
    except StoreDamagedError:
        return None
    return Checkpoint(
        end_index=end_index,
        committed_index=min(committed_index, end_index),
        begin_index=begin_index,
        membership_index=membership_index,
    )


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace it, durably; blocks for two fsyncs.

    After a StoreError, and a StoreFullError on a full volume, the last one stands.
    """
    path = folder / FILE_NAME
    values = {_COMMITTED: checkpoint.committed_index, _END: checkpoint.end_index}
    if checkpoint.begin_index is not None:
        values[_BEGIN] = checkpoint.begin_index
    if checkpoint.membership_index is not None:
        values[_MEMBERSHIP] = checkpoint.membership_index
    try:
        write_properties(path, values)
    except OSError as error:
        kind = StoreFullError if error.errno in NO_ROOM else StoreError
        raise kind(f"{path}: it could not be saved: {error}") from error
