"""The client for scripts that do not use asyncio: each call blocks until it is done.

    with BlockingClient(servers=["orders-nodes:40911"], group="orders") as client:
        client.append(b"hello")

It keeps a thread with an event loop, and the asyncio client in it, for as long as it is entered.
Several threads may use it at once.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from dledger_client.client import DLedgerClient, GroupMetadata
from dledger_client.members import Timing
from dledger_client.outcomes import Appended
from dledger_formats.requests import DLedgerEntry

T = TypeVar("T")


class BlockingClient:
    """As DLedgerClient, for one call at a time and thread."""

    def __init__(
        self,
        servers: Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        timing: Timing | None = None,
    ) -> None:
        """Take the same arguments as DLedgerClient."""
        self._client = DLedgerClient(
            servers, group, follow_leader=follow_leader, at_least_once=at_least_once, timing=timing
        )
        self._thread = threading.Thread(target=self._run, name=f"dledger-{group}", daemon=True)
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop, stop = self._started.result()
        loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        return self._thread.is_alive()

    def metadata(self) -> GroupMetadata:
        """Ask who the members are and who leads, as DLedgerClient.metadata."""
        return self._call(self._client.metadata())

    def append(self, body: bytes, *, deadline_s: float | None = None) -> Appended:
        """Append one entry, as DLedgerClient.append."""
        return self._call(self._client.append(body, deadline_s=deadline_s))

    def get(self, index: int, *, deadline_s: float | None = None) -> DLedgerEntry:
        """Read one entry, as DLedgerClient.get."""
        return self._call(self._client.get(index, deadline_s=deadline_s))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop, _ = self._started.result()
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        stop = asyncio.Event()
        async with self._client:
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
