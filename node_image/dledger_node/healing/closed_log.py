"""The log of a member that is out of service, as its peers may read it to mend their own."""

from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_formats.settings import NodeSettings
from dledger_node.config import store_folder
from dledger_node.store.log.damaged_ranges import LogShape
from dledger_node.store.log.served_segments import stored_bytes
from dledger_node.store.small_files.checkpoint import load_checkpoint


def shape_of(settings: NodeSettings) -> LogShape:
    """Return where a member's log is, and how large its files are."""
    return LogShape(
        folder=store_folder(settings),
        segment_size_bytes=settings.segment_size_bytes,
        index_segment_size_bytes=settings.index_segment_size_bytes,
    )


class ClosedLog:
    """Reads the data files of a store that need not be open, up to its checkpoint's committed
    index. So two members that are both damaged mend from each other, even if both are out of
    service.
    """

    def __init__(self, shape: LogShape) -> None:
        self._shape = shape

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return committed bytes of a data file, sound or not; blocks.

        See `stored_bytes` for `known`. Raises LookupError if there are none, OSError if they cannot
        be read.
        """
        end_pos = self._committed_end_pos()
        return stored_bytes(self._shape.folder / disk.DATA_FOLDER, name, at, size, end_pos, known)

    def _committed_end_pos(self) -> int:
        """Return where the last committed entry ends, by its index unit; 0 if that is unknown."""
        checkpoint = load_checkpoint(self._shape.folder)
        index = checkpoint.committed_index if checkpoint is not None else -1
        at, size = index * INDEX_UNIT_SIZE, self._shape.index_segment_size_bytes
        if at < 0:
            return 0
        path = self._shape.folder / disk.INDEX_FOLDER / disk.file_name(at - at % size)
        with path.open("rb") as file:
            file.seek(at % size)
            raw = file.read(INDEX_UNIT_SIZE)
        unit = disk.unpack_index_unit(raw.ljust(INDEX_UNIT_SIZE, b"\0"), 0)
        return unit.pos + unit.size if unit.index == index else 0
