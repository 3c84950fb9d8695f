"""A closed log with small segments, for tests of mending."""

from pathlib import Path

from dledger_formats.log import disk
from dledger_node.store.log.damaged_ranges import LogShape
from dledger_node.store.small_files.checkpoint import Checkpoint, load_checkpoint

SEGMENT_BYTES, INDEX_SEGMENT_BYTES = 4096, 320


def shape_of(folder: Path) -> LogShape:
    """Return where the log is, and how large its files are."""
    return LogShape(
        folder=folder,
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=INDEX_SEGMENT_BYTES,
    )


def checkpoint_of(folder: Path) -> Checkpoint:
    """Return the checkpoint of the log, which must have one."""
    found = load_checkpoint(folder)
    assert found is not None
    return found


def data_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each data file."""
    return {path.name: path.read_bytes() for path in (folder / disk.DATA_FOLDER).iterdir()}
