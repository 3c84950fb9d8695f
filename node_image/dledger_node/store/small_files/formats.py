"""Check whether a later release wrote a folder in formats that this one does not understand."""

from pathlib import Path

from dledger_node.errors import LaterFormatError, StoreError
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_node.store.small_files.group_file import load_owner
from dledger_node.store.small_files.hard_state import load_hard_state


def check_formats(folder: Path) -> None:
    """Raise LaterFormatError if a later release has written the small files of a folder.

    Changes nothing. Called before recovery, which cuts what it takes for a torn end. Damage is left
    to the functions that use the files.
    """
    for read in (load_owner, load_checkpoint, load_hard_state):
        try:
            read(folder)
        except LaterFormatError:
            raise
        except StoreError:
            continue
