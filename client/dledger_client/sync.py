"""The blocking client, for scripts that do not use asyncio.

    with BlockingClient(servers=["orders-nodes:40911"], group="orders") as client:
        client.append(b"hello")

While it is open, it runs the asyncio client in an event loop in its own thread. Several threads may
share it.
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

from dledger_client.admin import GroupMembership, GroupMetadata
from dledger_client.append.batches import body_type_error
from dledger_client.append.outcomes import Appended, Outcome
from dledger_client.append.stream import check_bodies
from dledger_client.client import (
    BATCH_MAX,
    IN_FLIGHT,
    IN_FLIGHT_BYTES,
    IN_FLIGHT_MAX,
    DLedgerClient,
)
from dledger_client.cluster.arguments import check_int, check_seconds
from dledger_client.cluster.members import Timing
from dledger_client.read.entry_batch import EntryBatch
from dledger_client.read.tail import LogBounds
from dledger_client.session import BATCHES_MAX
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.membership_change import ChangeKind

T = TypeVar("T")

CHUNK_MAX: Final = 256
"""Maximum number of items that move from the loop's thread to the caller's at once."""
BATCH_BYTES: Final = IN_FLIGHT_BYTES // (2 * BATCHES_MAX)
"""`append_all` adds no further body to a batch of this size."""
LINGER_S: Final = 0.01
"""How long `append_all` collects bodies before it sends a batch that is not full."""
_END: Final = object()


class BlockingClient:
    """DLedgerClient with blocking methods of the same names; used with `with`.

    An exception that interrupts a call, such as KeyboardInterrupt, cancels it.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        idempotent: bool = False,
        read_from: str = "leader",
        consistency: str = "linearizable",
        timing: Timing | None = None,
        admin_token: str = "",
        linger_s: float = LINGER_S,
    ) -> None:
        """Configure the client with the arguments of DLedgerClient.

        `linger_s` is how long `append_all` collects bodies before it sends a batch that is not
        full.
        """
        self._linger_s = linger_s if linger_s == 0 else check_seconds(linger_s, "linger_s")
        self._client = DLedgerClient(
            servers,
            group,
            follow_leader=follow_leader,
            at_least_once=at_least_once,
            idempotent=idempotent,
            read_from=read_from,
            consistency=consistency,
            timing=timing,
            admin_token=admin_token,
        )
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._open: set[_Chunks[Any]] = set()

    def __enter__(self) -> Self:
        if self.is_running:
            raise RuntimeError("this BlockingClient is open already; open another one")
        self._started = Future()
        name = f"dledger-{self._client.group}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
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
        assert self._thread is not None
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the client's thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def metadata(self) -> GroupMetadata:
        """Ask for the members and the leader; see DLedgerClient.metadata."""
        return self._call(self._client.metadata())

    def append(self, body: bytes, *, deadline_s: float | None = None) -> Appended:
        """Append one entry; see DLedgerClient.append."""
        return self._call(self._client.append(body, deadline_s=deadline_s))

    def append_batch(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> list[Outcome]:
        """Append several entries concurrently; see DLedgerClient.append_batch."""
        return self._call(self._client.append_batch(bodies, deadline_s=deadline_s))

    def append_all(
        self,
        bodies: Iterable[bytes],
        *,
        in_flight: int = IN_FLIGHT,
        deadline_s: float | None = None,
    ) -> Iterator[Outcome]:
        """Append any number of bodies and yield one outcome for each, in the order of the bodies.

        The caller's thread iterates over `bodies` while the caller fetches outcomes; at most
        `in_flight` appends are outstanding at a time. While `bodies` blocks, the bodies before it
        that were not sent yet wait; they are sent as soon as the next body arrives.
        """
        check_int(in_flight, "in_flight", 1, IN_FLIGHT_MAX)
        size = min(BATCH_MAX, max(1, in_flight // BATCHES_MAX))
        batches: deque[tuple[int, Future[list[Outcome]]]] = deque()
        number = 0
        try:
            for batch in _group_bodies(iter(check_bodies(bodies)), size, self._linger_s):
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
        """Read one entry; see DLedgerClient.get."""
        return self._call(self._client.get(index, deadline_s=deadline_s))

    def get_range(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> Iterator[DLedgerEntry]:
        """Read entries in order; see DLedgerClient.get_range."""
        for batch in self.read_batches(first, last, deadline_s=deadline_s):
            yield from batch.entries()

    def read_batches(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> Iterator[EntryBatch]:
        """Read entries in batches; see DLedgerClient.read_batches."""
        batches = self._client.read_batches(first, last, deadline_s=deadline_s)
        return self._iterate(batches, chunk_max=1)

    def tail(
        self, first: int | None = None, *, deadline_s: float | None = None
    ) -> Iterator[DLedgerEntry]:
        """Read entries as they are appended, forever; see DLedgerClient.tail."""
        return self._iterate(self._client.tail(first, deadline_s=deadline_s))

    def bounds(self, *, deadline_s: float | None = None) -> LogBounds:
        """Return the first and the last index; see DLedgerClient.bounds."""
        return self._call(self._client.bounds(deadline_s=deadline_s))

    def set_register(self, key: int, value: int, *, deadline_s: float | None = None) -> Appended:
        """Append an entry that sets a register; see DLedgerClient.set_register."""
        return self._call(self._client.set_register(key, value, deadline_s=deadline_s))

    def read_register(self, key: int, *, deadline_s: float | None = None) -> int | None:
        """Read a register; see DLedgerClient.read_register."""
        return self._call(self._client.read_register(key, deadline_s=deadline_s))

    def register_producer(self, *, deadline_s: float | None = None) -> int:
        """Register a producer; see DLedgerClient.register_producer."""
        return self._call(self._client.register_producer(deadline_s=deadline_s))

    def resume_producer(self, producer: int, acknowledged: int = 0, sent: int = 0) -> None:
        """Go on with a registered producer; see DLedgerClient.resume_producer."""
        self._call(self._client.resume_producer(producer, acknowledged, sent))

    def transfer(
        self, transferee_id: str, *, term: int | None = None, deadline_s: float | None = None
    ) -> GroupMetadata:
        """Transfer leadership to a member; see DLedgerClient.transfer."""
        return self._call(self._client.transfer(transferee_id, term=term, deadline_s=deadline_s))

    def membership(self, *, deadline_s: float | None = None) -> GroupMembership:
        """Ask the leader for the voters and learners; see DLedgerClient.membership."""
        return self._call(self._client.membership(deadline_s=deadline_s))

    def change_membership(
        self, change: ChangeKind, member_id: str, *, deadline_s: float | None = None
    ) -> GroupMembership:
        """Change one member; see DLedgerClient.change_membership."""
        return self._call(self._client.change_membership(change, member_id, deadline_s=deadline_s))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self._start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt ends only the wait; the coroutine would continue
            raise

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if not self.is_running:
            coroutine.close()
            raise RuntimeError("BlockingClient was used outside its `with` block")
        loop, _ = self._started.result()
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def _iterate(self, items: AsyncGenerator[T, None], chunk_max: int = CHUNK_MAX) -> Iterator[T]:
        chunks = _Chunks(items, chunk_max)
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
    """Fetches the available items of an async generator in chunks.

    A thread switch for each item would be slow.
    """

    def __init__(self, items: AsyncGenerator[T, None], count_max: int) -> None:
        self._items = items
        self._count_max = count_max
        # Fetches the next item; may outlive a call of `next`.
        self._next: asyncio.Task[T | object] | None = None

    async def next(self) -> list[T]:
        """Return the available items, at least one; an empty list marks the end.

        Raises an error of the generator after the items before it were returned.
        """
        chunk: list[T] = []
        while len(chunk) < self._count_max:
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
        """Close the generator."""
        if self._next is not None:
            self._next.cancel()
            # Retrieve the task's error, if any, so that asyncio does not log it.
            await asyncio.gather(self._next, return_exceptions=True)
        await self._items.aclose()

    async def _take(self) -> T | object:
        return await anext(self._items, _END)


def _group_bodies(
    bodies: Iterator[bytes], count_max: int, linger_s: float
) -> Iterator[list[bytes]]:
    """Yield the bodies in batches; a batch ends when it is full or after `linger_s`."""
    for first in bodies:
        batch, size_bytes, until_s = [first], _size_bytes(first), time.monotonic() + linger_s
        while len(batch) < count_max and size_bytes < BATCH_BYTES and time.monotonic() < until_s:
            body = next(bodies, None)
            if body is None:
                break
            batch.append(body)
            size_bytes += _size_bytes(body)
        yield batch


def _size_bytes(body: bytes) -> int:
    if not isinstance(body, bytes):
        raise body_type_error(body)
    return len(body)


def _renumber_outcomes(begin: int, sent: Future[list[Outcome]]) -> Iterator[Outcome]:
    """Yield the outcomes of a batch, numbered from `begin`."""
    for number, outcome in enumerate(sent.result(), begin):
        yield msgspec.structs.replace(outcome, number=number)
