"""The blocking client, for scripts that do not use asyncio.

    with BlockingClient(servers=["orders-nodes:40911"], group="orders") as client:
        client.append(b"hello")

While it is open, it runs the asyncio client in an event loop in its own thread. Several threads may
share it.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec
import uvloop

from dledger_client.admin import GroupMembership, GroupMetadata
from dledger_client.append.grouped import GroupedBodies
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
from dledger_client.errors import OutcomeUnknownError
from dledger_client.read.chunks import CHUNK_MAX, Chunks
from dledger_client.read.entry_batch import EntryBatch
from dledger_client.read.tail import LogBounds
from dledger_client.same_loop import is_forked, why_closed
from dledger_client.session import BATCHES_MAX
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.membership_change import ChangeKind

T = TypeVar("T")

BATCH_BYTES: Final = IN_FLIGHT_BYTES // (2 * BATCHES_MAX)
"""`append_all` adds no further body to a batch of this size."""
LINGER_S: Final = 0.01
"""How long `append_all` collects bodies before it sends a batch that is not full."""
CUT_OFF: Final = "the client was closed before the call had ended; it may have had its effect"
CALLS_END_S: Final = 5.0
"""How long a client that is being closed waits for the calls of other threads to end."""


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
        self._opened_by = 0  # the process id
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._open: set[Chunks[Any]] = set()
        # The calls that have not ended.
        self._calls: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        self._has_ended = False
        """Whether the loop has stopped running calls."""

    def __enter__(self) -> Self:
        if self.is_running:
            raise RuntimeError("this BlockingClient is open already; open another one")
        self._started = Future()
        self._has_ended = False
        self._opened_by = os.getpid()
        name = f"dledger-{self._client.group}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        if (error := self._started.exception()) is not None:
            self._thread.join()
            raise error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if is_forked(self._opened_by):
            return  # it stays open in the other process
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
        `in_flight` appends, or 64 MiB and one body, are outstanding at a time. While `bodies`
        blocks, the bodies before it that were not sent yet wait; they are sent as soon as the next
        body arrives. An error of `bodies` is raised after the outcomes of the bodies before it.
        """
        check_int(in_flight, "in_flight", 1, IN_FLIGHT_MAX)
        size = min(BATCH_MAX, max(1, in_flight // BATCHES_MAX))
        batches: deque[_SentBatch] = deque()
        number = outstanding_bytes = 0
        grouped = GroupedBodies(iter(check_bodies(bodies)), size, BATCH_BYTES, self._linger_s)
        try:
            for batch in grouped:
                appending = self._client.append_batch(batch, deadline_s=deadline_s)
                try:
                    outcomes = self._start(appending)
                except RuntimeError as error:  # another thread has closed the client
                    grouped.error = error
                    break
                batches.append(_SentBatch(number, sum(map(len, batch)), outcomes))
                number += len(batch)
                outstanding_bytes += batches[-1].size_bytes
                while (
                    len(batches) * size + size > in_flight
                    or outstanding_bytes + BATCH_BYTES > IN_FLIGHT_BYTES
                ):
                    yield from _renumber_outcomes(batches[0])
                    outstanding_bytes -= batches.popleft().size_bytes
            while batches:
                yield from _renumber_outcomes(batches[0])
                batches.popleft()
        finally:  # an interrupt also cancels the batch that is awaited, which is still the first
            for batch_sent in batches:
                batch_sent.outcomes.cancel()
        if grouped.error is not None:
            raise grouped.error

    def append_in_order(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> Iterator[Outcome]:
        """Append one request after another; see DLedgerClient.append_in_order."""
        return self._iterate(self._client.append_in_order(bodies, deadline_s=deadline_s))

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
        """Continue as a registered producer; see DLedgerClient.resume_producer."""
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
        return _result(self._start(coroutine))

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a call. Raises RuntimeError if the client is not open in this process.

        If another thread closes the client at this moment, the call is cancelled: either this
        thread sees that the loop has ended, or the loop's thread sees the call.
        """
        try:
            if not self.is_running:
                raise RuntimeError("it is not open")
            loop, _ = self._started.result()
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:
            coroutine.close()
            raise RuntimeError(why_closed(self._opened_by)) from error
        self._calls[future] = coroutine
        future.add_done_callback(lambda ended: self._calls.pop(ended, None))
        if self._has_ended:
            _abandon(future, coroutine)
        return future

    def _iterate(self, items: AsyncGenerator[T, None], chunk_max: int = CHUNK_MAX) -> Iterator[T]:
        chunks = Chunks(items, chunk_max)
        self._open.add(chunks)
        try:
            while chunk := self._call(chunks.next()):
                yield from chunk
        finally:
            self._open.discard(chunks)
            with contextlib.suppress(RuntimeError, OutcomeUnknownError):  # closed meanwhile
                closing = self._start(chunks.close())
                # If the garbage collector frees this in the loop's thread, a wait would not end.
                if threading.current_thread() is not self._thread:
                    _result(closing)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)  # `__enter__` raises it
        finally:
            self._has_ended = True
            for future, coroutine in list(self._calls.items()):
                _abandon(future, coroutine)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        async with self._client:
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
        # The requests of other threads' calls have ended with their errors: let the calls raise.
        if calls := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(calls, timeout=CALLS_END_S)


class _SentBatch(NamedTuple):
    """A batch of `append_all` whose outcomes have not been fetched yet."""

    first_number: int
    size_bytes: int
    outcomes: Future[list[Outcome]]


def _result(future: Future[T]) -> T:
    """Wait for a call. Raises OutcomeUnknownError if it was cut off when the client was closed."""
    try:
        return future.result()
    except CancelledError:
        raise OutcomeUnknownError(CUT_OFF) from None
    except BaseException:
        future.cancel()  # an interrupt ends only the wait; the coroutine would continue
        raise


def _abandon(future: Future[Any], coroutine: Coroutine[Any, Any, Any]) -> None:
    """End a call whose loop has ended."""
    if future.cancel():
        coroutine.close()


def _renumber_outcomes(sent: _SentBatch) -> Iterator[Outcome]:
    """Yield the outcomes of a batch, with their numbers in the stream."""
    outcomes: list[Outcome] = _result(sent.outcomes)
    for number, outcome in enumerate(outcomes, sent.first_number):
        yield msgspec.structs.replace(outcome, number=number)
