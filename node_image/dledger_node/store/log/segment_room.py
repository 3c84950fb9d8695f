"""The room for entries in the existing segments, and the allocation of more."""

import threading
from collections.abc import Callable, Sequence

from dledger_node.store.log.block import Block
from dledger_node.store.log.writer import LogWriter


class SegmentRoom:
    """Checks whether writes fit in the existing segments; a worker thread allocates more."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.lock = threading.Lock()
        """Held while segments are allocated."""

    def is_ample(self, entry_count: int, body_bytes: int) -> bool:
        """Return whether entries surely fit into the last segments, whatever their sizes; cheap."""
        return self._writer.has_ample_room(entry_count, body_bytes)

    def fits(self, body_sizes: Sequence[int]) -> bool:
        """Return whether `LogStore.reserve` would find room in the segments that exist."""
        return self._writer.has_room(body_sizes)

    def fits_block(self, block: Block) -> bool:
        """Return whether `LogStore.reserve_block` would find room in the segments that exist."""
        return self._writer.has_room_for_block(block)

    def make(self, reserve: Callable[[], object]) -> None:
        """Call `reserve` or `reserve_block` in a worker thread; blocks. Raises their errors."""
        with self.lock:
            reserve()
