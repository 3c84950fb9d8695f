"""What HTTP shows of a member: the server in service, or the outage that has taken its place."""

import asyncio
from typing import BinaryIO, Protocol

from dledger_formats.http.status import LeaderView, Manifest, NodeStatus
from dledger_node.http import metrics, pages


class Source(pages.Source, metrics.Source, Protocol):
    """The data about a member that HTTP shows."""


class CurrentSource:
    """Forwards to the current source: a server in service, or an outage."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._replaced = asyncio.Event()

    @property
    def source(self) -> Source:
        """The current source."""
        return self._source

    @source.setter
    def source(self, source: Source) -> None:
        self._source = source
        self._replaced.set()
        self._replaced = asyncio.Event()

    def status(self) -> NodeStatus:
        """Return this member's view of the group."""
        return self.source.status()

    def not_ready_reason(self) -> str:
        """Return why this member does not serve its role; empty if it does."""
        return self.source.not_ready_reason()

    def leader_view(self) -> LeaderView:
        """Return the leader, as far as this member knows it."""
        return self.source.leader_view()

    async def leader_changed(self, token: str) -> None:
        """Return once the token of `leader_view` differs from `token`, in any source."""
        while self.leader_view().token == token:
            waits = [
                asyncio.ensure_future(self._source.leader_changed(token)),
                asyncio.ensure_future(self._replaced.wait()),
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def manifest(self) -> Manifest:
        """Return the files that may be read."""
        return await self.source.manifest()

    async def readable_bytes(self, folder: pages.Folder, name: str) -> int | None:
        """Return how much of a file may be read; None if it is not in the manifest."""
        return await self.source.readable_bytes(folder, name)

    def read_file(self, folder: pages.Folder, name: str, start: int, end: int) -> bytes:
        """Return bytes of a file of the manifest; blocks."""
        return self.source.read_file(folder, name, start, end)

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        """Return committed bytes of a data file, sound or not; blocks. Raises LookupError."""
        return self.source.stored(name, at, size, known)

    def open_file(self, name: str) -> BinaryIO:
        """Open a small file or a file of a snapshot; blocks. Raises OSError."""
        return self.source.open_file(name)

    def counters(self) -> metrics.Counters:
        """Return the counters."""
        return self.source.counters()
