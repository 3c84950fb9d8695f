"""List the files of a log that is to be opened or surveyed."""

import sys
from pathlib import Path
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_node.store.log.files import LogFiles
from dledger_node.store.segments.segment_list import SegmentList
from dledger_node.store.small_files.checkpoint import Checkpoint

INDEX_USED_END: Final = sys.maxsize
"""An index file that is too short counts as cut short in any case, since it can be rebuilt."""


def load_files(
    folder: Path,
    checkpoint: Checkpoint | None,
    segment_size_bytes: int,
    index_segment_size_bytes: int,
    open_files_max: int,
) -> LogFiles:
    """List the data and the index files of a store. Raises StoreDamagedError."""
    data = SegmentList.load(
        folder / disk.DATA_FOLDER,
        segment_size_bytes,
        open_files_max,
        used_end=durable_end_pos(folder, checkpoint, index_segment_size_bytes),
    )
    index = SegmentList.load(
        folder / disk.INDEX_FOLDER,
        index_segment_size_bytes,
        open_files_max,
        used_end=INDEX_USED_END,
    )
    return LogFiles(data, index)


def durable_end_pos(
    folder: Path, checkpoint: Checkpoint | None, index_segment_size_bytes: int
) -> int:
    """Return where the last durable entry ends, by its index unit; 0 if that is not known.

    A data file that ends before was cut short, even if no other file shows how long it was.
    """
    index = checkpoint.end_index if checkpoint is not None else -1
    if index < 0:
        return 0
    at = index * INDEX_UNIT_SIZE
    start = at - at % index_segment_size_bytes
    try:
        with (folder / disk.INDEX_FOLDER / disk.file_name(start)).open("rb") as file:
            file.seek(at - start)
            raw = file.read(INDEX_UNIT_SIZE)
    except OSError:
        return 0
    unit = disk.unpack_index_unit(raw.ljust(INDEX_UNIT_SIZE, b"\0"), 0)
    return unit.pos + unit.size if unit.index == index else 0
