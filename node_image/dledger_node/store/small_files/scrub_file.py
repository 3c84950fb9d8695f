"""The progress of a scrubbing pass, on disk: the file `scrub`, beside the checkpoint.

A restart would otherwise begin the pass again, and a member that restarts more often than a pass
ends would never read the end of its log. Nothing else depends on the file: if it is missing,
damaged or from another log, the pass begins again, or the entries before its place are read only
in the next pass.
"""

from pathlib import Path
from typing import Final

from dledger_node.errors import NodeError
from dledger_node.store.small_files.properties import (
    parse_number,
    read_properties,
    write_properties,
)
from dledger_node.store.small_files.whole_file import saving

FILE_NAME: Final = "scrub"
_NEXT_INDEX: Final = "nextIndex"


def save(folder: Path, next_index: int) -> None:
    """Save the entry to read next, 0 between two passes, durably; blocks for two fsyncs.

    Raises as `saving` does.
    """
    path = folder / FILE_NAME
    with saving(path):
        write_properties(path, {_NEXT_INDEX: next_index})


def load(folder: Path) -> int:
    """Return the entry to read next; 0 if the file is missing or damaged."""
    path = folder / FILE_NAME
    try:
        values = read_properties(path, (_NEXT_INDEX,))
        return 0 if values is None else parse_number(path, values, _NEXT_INDEX, 0)
    except NodeError:
        return 0
