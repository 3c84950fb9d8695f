"""The durable and the committed index, in DLedger's `checkpoint` (written by Java up to 0.3.2).

`endIndex` is the durable index: every entry up to it was flushed, so an entry missing there was
lost, not torn by a crash. `committedIndex` is the group's committed index, as far as it is durable
here. Java ignores the other keys. `beginIndex`: a log that begins later has lost segments that
retention did not remove. `beginChainCrc`: the chain CRC of the entry before the first one, which
proves the header of that entry. `membershipIndex`: the file `memberships` must hold the membership
of this entry.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_node.errors import StoreDamagedError
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
    write_properties,
)
from dledger_node.store.small_files.whole_file import saving

FILE_NAME: Final = "checkpoint"
_COMMITTED: Final = "committedIndex"
_END: Final = "endIndex"
_BEGIN: Final = "beginIndex"
_BEGIN_CHAIN: Final = "beginChainCrc"
_MEMBERSHIP: Final = "membershipIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Indexes of the log; -1 for none. Invariant: committed_index <= end_index."""

    end_index: int
    committed_index: int
    begin_index: int | None = None
    """Index of the log's first entry; None in a file that Java wrote."""
    begin_chain_crc: int | None = None
    """Chain CRC of the entry before the log's first one; None if that is entry 0, if no checksum
    covers the first one, or in a file that Java or an earlier version wrote.
    """
    membership_index: int | None = None
    """The last membership entry up to committed_index, or before the log's first entry; -1 if
    there is none. None in a file that Java or an earlier version wrote.
    """


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint; return None if it is missing or damaged."""
    path = folder / FILE_NAME
    try:
        values = read_properties(
            path, (_COMMITTED, _END), optional=(_BEGIN, _BEGIN_CHAIN, _MEMBERSHIP)
        )
        if values is None:
            return None
        end_index = parse_number(path, values, _END, -1)
        committed_index = parse_number(path, values, _COMMITTED, -1)
        begin_index = parse_number(path, values, _BEGIN, 0) if _BEGIN in values else None
        begin_chain_crc = (
            parse_number(path, values, _BEGIN_CHAIN, 0) if _BEGIN_CHAIN in values else None
        )
        has_membership = _MEMBERSHIP in values
        membership_index = parse_number(path, values, _MEMBERSHIP, -1) if has_membership else None
    except StoreDamagedError:
        return None
    return Checkpoint(
        end_index=end_index,
        committed_index=min(committed_index, end_index),
        begin_index=begin_index,
        begin_chain_crc=begin_chain_crc,
        membership_index=membership_index,
    )


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint, durably; blocks for two fsyncs. Raises as `saving` does."""
    path = folder / FILE_NAME
    values = {_COMMITTED: checkpoint.committed_index, _END: checkpoint.end_index}
    if checkpoint.begin_index is not None:
        values[_BEGIN] = checkpoint.begin_index
    if checkpoint.begin_chain_crc is not None:
        values[_BEGIN_CHAIN] = checkpoint.begin_chain_crc
    if checkpoint.membership_index is not None:
        values[_MEMBERSHIP] = checkpoint.membership_index
    with saving(path):
        write_properties(path, values)
