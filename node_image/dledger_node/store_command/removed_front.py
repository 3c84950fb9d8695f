"""Segments before the log's beginning: a crash interrupted their removal.

They no longer belong to the log, so damage in them is not damage to the store. The rules are those
of `recovery.forget_removed`.
"""

from dledger_formats.log import disk
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, IndexUnit
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store_command.findings import Finding, Kind
from dledger_node.store_command.log_folder import LogFolder, RawSegment


def removed_front(
    data: LogFolder, index: LogFolder, checkpoint: Checkpoint | None
) -> tuple[RawSegment, ...]:
    """Return the data segments before the checkpoint's beginning, oldest first.

    Returns none unless the place of the first entry is certain.
    """
    if checkpoint is None or checkpoint.begin_index is None:
        return ()
    begin_index = checkpoint.begin_index
    if not 0 < begin_index <= checkpoint.end_index:
        return ()
    unit = _unit(index, begin_index)
    if unit is None or not _border_is_known(data, index, unit):
        return ()
    return tuple(segment for segment in data.segments if segment.end <= unit.pos)


def finding(removed: tuple[RawSegment, ...]) -> Finding:
    """Return the finding about the segments whose removal was interrupted."""
    held = "1 segment lies" if len(removed) == 1 else f"{len(removed)} segments lie"
    return Finding(
        kind=Kind.LEFT_BEHIND,
        file=removed[0].label,
        detail=f"{held} before the log's beginning, since their removal was interrupted; a node "
        "removes them when it starts",
    )


def _border_is_known(data: LogFolder, index: LogFolder, unit: IndexUnit) -> bool:
    """Return whether an index unit and one more source show that its entry begins a segment."""
    segment = data.segment_at(unit.pos)
    if segment is None or segment.start != unit.pos:
        return False
    raw = segment.read(0, ENTRY_HEADER_SIZE)
    if len(raw) == ENTRY_HEADER_SIZE:
        header = disk.unpack_header(raw, 0)
        found = (header.magic, header.size, header.index, header.term)
        if found == (unit.magic, unit.size, unit.index, unit.term):
            return True
    before = _unit(index, unit.index - 1)
    if before is None:
        return False
    in_segment_before = unit.pos - data.segment_size <= before.pos < unit.pos
    return in_segment_before and before.pos + before.size <= unit.pos


def _unit(index: LogFolder, entry_index: int) -> IndexUnit | None:
    """Return the index unit of an entry; None if it is missing or is another entry's."""
    pos = entry_index * INDEX_UNIT_SIZE
    segment = index.segment_at(pos)
    raw = segment.read(pos - segment.start, INDEX_UNIT_SIZE) if segment else b""
    if len(raw) < INDEX_UNIT_SIZE:
        return None
    unit = disk.unpack_index_unit(raw, 0)
    return unit if unit.index == entry_index else None
