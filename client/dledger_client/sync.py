"""The client for scripts that do not use asyncio: each call blocks until it is done.

    with BlockingClient(servers=["orders-nodes:40911"], group="orders") as client:
        client.append(b"hello")

It keeps a thread with an event loop, and the asyncio client in it, for as long as it is entered.
Several threads may use it at once.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
import uvloop

from dledger_client.append.outcomes import Appended, Outcome
from dledger_client.client import (
    BATCH_MAX,
    IN_FLIGHT,
    IN_FLIGHT_BYTES,
    DLedgerClient,
    GroupMembership,
    GroupMetadata,
)
from dledger_client.cluster.members import Timing
from dledger_client.read.tail import LogBounds
from dledger_client.session import BATCHES_MAX
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.requests import DLedgerEntry

T = TypeVar("T")

CHUNK_MAX: Final = 256
"""Entries that cross from the loop's thread to the caller's in one go."""
BATCH_BYTES: Final = IN_FLIGHT_BYTES // (2 * BATCHES_MAX)
"""A batch with more bytes gets no more bodies."""
LINGER_S: Final = 0.01
"""For so long bodies are taken before those that are there are sent."""
_END: Final = object()


class BlockingClient:
    """As DLedgerClient, with the same words, for one call at a time and thread.

    Ctrl-C and the like cancel the call that they interrupt, as there.
    """

    def __init__(
        self,
        servers: Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        idempotent: bool = False,
        timing: Timing | None = None,
    ) -> None:
        """Take the same arguments as DLedgerClient."""
        self._client = DLedgerClient(
            servers,
            group,
            follow_leader=follow_leader,
            at_least_once=at_least_once,
            idempotent=idempotent,
            timing=timing,
        )
        self._thread = threading.Thread(target=self._run, name=f"dledger-{group}", daemon=True)
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._open: set[_Chunks[Any]] = set()

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
        for chunks in list(self._open):
            self._call(chunks.close())
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

    def append_batch(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> list[Outcome]:
        """Append many entries at once, as DLedgerClient.append_batch."""
        return self._call(self._client.append_batch(bodies, deadline_s=deadline_s))

    def append_all(
        self,
        bodies: Iterable[bytes],
        *,
        in_flight: int = IN_FLIGHT,
        deadline_s: float | None = None,
    ) -> Iterator[Outcome]:
        """Append any number of bodies and yield what became of each, in their order.

        Bodies are taken in the caller's thread, while outcomes are fetched; up to `in_flight` are
        awaited at a time. One that comes late does not hold back those before it for longer than it
        takes to come.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}; at least 1 is needed")
        size = min(BATCH_MAX, max(1, in_flight // BATCHES_MAX))
        batches: deque[tuple[int, Future[list[Outcome]]]] = deque()
        number = 0
        try:
            for batch in _group_bodies(iter(bodies), size):
                sent = self._start(self._client.append_batch(batch, deadline_s=deadline_s))
                batches.append((number, sent))
                number += len(batch)
                if len(batches) * size >= in_flight:
                    yield from _renumber_outcomes(*batches.popleft())
            while batches:
                yield from _renumber_outcomes(*batches.popleft())
        finally:
            for _, sent in batches:
                sent.cancel()

    def get(self, index: int, *, deadline_s: float | None = None) -> DLedgerEntry:
        """Read one entry, as DLedgerClient.get."""
        return self._call(self._client.get(index, deadline_s=deadline_s))

    def get_range(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> Iterator[DLedgerEntry]:
        """Read entries in order, as DLedgerClient.get_range."""
        return self._iterate(self._client.get_range(first, last, deadline_s=deadline_s))

    def tail(
        self, first: int | None = None, *, deadline_s: float | None = None
    ) -> Iterator[DLedgerEntry]:
        """Read entries as they are appended, for ever, as DLedgerClient.tail."""
        return self._iterate(self._client.tail(first, deadline_s=deadline_s))

    def bounds(self, *, deadline_s: float | None = None) -> LogBounds:
        """Ask for the first and last index, as DLedgerClient.bounds."""
        return self._call(self._client.bounds(deadline_s=deadline_s))

    def set_register(self, key: int, value: int, *, deadline_s: float | None = None) -> Appended:
        """Append the entry that sets a register, as DLedgerClient.set_register."""
        return self._call(self._client.set_register(key, value, deadline_s=deadline_s))

    def read_register(self, key: int, *, deadline_s: float | None = None) -> int | None:
        """Read a register, as DLedgerClient.read_register."""
        return self._call(self._client.read_register(key, deadline_s=deadline_s))

    def transfer(
        self, transferee_id: str, *, term: int | None = None, deadline_s: float | None = None
    ) -> GroupMetadata:
        """Hand the leadership over, as DLedgerClient.transfer."""
        return self._call(self._client.transfer(transferee_id, term=term, deadline_s=deadline_s))

    def membership(self, *, deadline_s: float | None = None) -> GroupMembership:
        """Ask who belongs to the group, as DLedgerClient.membership."""
        return self._call(self._client.membership(deadline_s=deadline_s))

    def change_membership(
        self, change: ChangeKind, member_id: str, *, deadline_s: float | None = None
    ) -> GroupMembership:
        """Change one member, as DLedgerClient.change_membership."""
        return self._call(self._client.change_membership(change, member_id, deadline_s=deadline_s))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self._start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # it goes on otherwise, when only the waiting was interrupted
            raise

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if not self.is_running:
            coroutine.close()
            raise RuntimeError("BlockingClient is used outside of its `with`")
        loop, _ = self._started.result()
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        chunks = _Chunks(items)
        self._open.add(chunks)
        try:
            while chunk := self._call(chunks.next()):
                yield from chunk
        finally:
            self._open.discard(chunks)
            if self.is_running:
                self._call(chunks.close())

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        stop = asyncio.Event()
        async with self._client:
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()


class _Chunks(Generic[T]):
    """Takes items in the loop's thread, as many as are there; an item each would be slow."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        # The next item, which may be awaited across calls.
        self._next: asyncio.Task[T | object] | None = None

    async def next(self) -> list[T]:
        """Return at least one item; none at the end. Raises what the items raise, after those
        before it.
        """
        chunk: list[T] = []
        while len(chunk) < CHUNK_MAX:
            if self._next is None:
                self._next = asyncio.create_task(self._take())
            await asyncio.wait({self._next}, timeout=0 if chunk else None)
            if not self._next.done() or (chunk and self._next.exception() is not None):
                break
            item = self._next.result()
            if item is _END:
                break
            self._next = None
            chunk.append(item)  # type: ignore[arg-type]  # the only other object is _END
        return chunk

    async def close(self) -> None:
        """End the items."""
        if self._next is not None:
            self._next.cancel()
            # Its error, if it has one, is for nobody any more.
            await asyncio.gather(self._next, return_exceptions=True)
        await self._items.aclose()

    async def _take(self) -> T | object:
        return await anext(self._items, _END)


def _group_bodies(bodies: Iterator[bytes], count_max: int) -> Iterator[list[bytes]]:
    """Yield the bodies in lists; one ends when it is full, or after LINGER_S."""
    for first in bodies:
        batch, size_bytes, until_s = [first], len(first), time.monotonic() + LINGER_S
        while len(batch) < count_max and size_bytes < BATCH_BYTES and time.monotonic() < until_s:
            body = next(bodies, None)
            if body is None:
                break
            batch.append(body)
            size_bytes += len(body)
        yield batch


def _renumber_outcomes(begin: int, sent: Future[list[Outcome]]) -> Iterator[Outcome]:
    """Count the outcomes of a batch from its first body's number."""
    for number, outcome in enumerate(sent.result(), begin):
        yield msgspec.structs.replace(outcome, number=number)
