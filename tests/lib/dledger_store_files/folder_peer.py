"""A peer without a process, which returns the stored bytes of a folder."""

from collections.abc import Callable
from pathlib import Path

from dledger_formats.log import disk
from dledger_node.store.log.served_segments import stored_bytes


class FolderPeer:
    """Returns bytes of the data files of a folder, as `healing.peer_bytes.Peer` does."""

    def __init__(
        self, folder: Path, before: Callable[[], None] = lambda: None, *, end_pos: int = 1 << 40
    ) -> None:
        """`before` is called at every request. The peer's committed entries end at `end_pos`."""
        self.end_pos = end_pos
        self.asked_bytes = 0
        """Number of bytes that were requested."""
        self._folder = folder
        self._before = before

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """See `Peer`."""
        self._before()
        self.asked_bytes += size
        return stored_bytes(self._folder / disk.DATA_FOLDER, name, at, size, self.end_pos, known)
