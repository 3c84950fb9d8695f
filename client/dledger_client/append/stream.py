"""Appending a stream of bodies: a window of appends in flight, outcomes in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Final, TypeAlias, TypeVar

from dledger_client.append import batches
from dledger_client.append.batches import AppendStarter, Batch, body_type_error, outcome_of
from dledger_client.append.outcomes import Outcome
from dledger_client.cluster.arguments import check_seconds
from dledger_client.errors import GroupUnreachableError
from dledger_client.tasks import Spawn

Bodies: TypeAlias = Iterable[bytes] | AsyncIterable[bytes]

BATCHES_IN_WINDOW: Final = 8
"""Number of batches that fill a window, so that some are in flight while others fill."""
CLOSED: Final = "the client was closed before it had taken all bodies"


AnyBodies = TypeVar("AnyBodies", bound=Bodies)


def check_bodies(bodies: AnyBodies) -> AnyBodies:
    """Return `bodies` if it is iterable. Raises TypeError otherwise."""
    if not isinstance(bodies, Iterable | AsyncIterable):
        raise TypeError(f"bodies must be iterable, which {type(bodies).__name__} is not")
    return bodies


async def append_stream(
    starter: AppendStarter,
    bodies: Bodies,
    in_flight: int,
    in_flight_bytes: int,
    deadline_s: float | None,
    spawn: Spawn,
) -> AsyncGenerator[Outcome, None]:
    """Append each body and yield one outcome for each, in the order of the bodies.

    At most `in_flight` bodies or `in_flight_bytes` bytes are taken from `bodies` before the caller
    has fetched the outcome of the first of them. An error of `bodies` is raised after the outcomes
    of the bodies before it, and so is GroupUnreachableError if the client is closed meanwhile. If
    the caller closes the generator early, it gets no outcome of the remaining bodies, and those
    that were not sent yet are dropped. Raises TypeError or ValueError if the deadline is invalid.
    """
    starter.check_loop()
    if deadline_s is not None:
        check_seconds(deadline_s, "deadline_s")
    window = _Window(starter, in_flight, in_flight_bytes, deadline_s)
    feeder = spawn(window.feed(bodies))
    feeder.add_done_callback(window.end)
    number = 0
    try:
        while (batch := window.oldest or await window.first()) is not None:
            outcomes = await batch.outcomes(number)
            if outcomes is None:
                for at, call in enumerate(batch.calls, number):
                    yield outcome_of(at, call, await call.answer)
            else:
                for outcome in outcomes:
                    yield outcome
            number += len(batch.bodies)
            window.remove_first()
    finally:
        feeder.cancel()
        window.cancel_all()
    if window.error is not None:
        raise window.error


class _Window:
    """The started batches, oldest first, and the next batch, which is being filled."""

    def __init__(
        self, starter: AppendStarter, bodies_max: int, bytes_max: int, deadline_s: float | None
    ) -> None:
        self.error: BaseException | None = None
        """Why not all bodies were taken, which append_stream raises; None if all were taken."""
        self._starter = starter
        self._bodies_max = bodies_max
        self._bytes_max = bytes_max
        self._deadline_s = deadline_s
        self._batch_bodies_max = min(batches.BODIES_MAX, max(1, bodies_max // BATCHES_IN_WINDOW))
        self._batches: deque[Batch] = deque()
        self._next: list[bytes] = []
        self._next_bytes = 0
        # Number and size of the bodies in all batches, including the next one.
        self._count = 0
        self._bytes = 0
        self._is_complete = False
        self._is_closed = False
        self._has_room = asyncio.Event()
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def feed(self, bodies: Bodies) -> None:
        """Append the bodies as long as the window has room for them."""
        try:
            # Wait for room before taking the next body: a body's time begins when it is taken.
            if isinstance(bodies, AsyncIterable):
                async for body in bodies:
                    self._add(body)
                    await self._wait_for_room()
            else:
                for body in bodies:
                    self._add(body)
                    if self._count >= self._bodies_max or self._bytes >= self._bytes_max:
                        await self._wait_for_room()
        except (Exception, asyncio.CancelledError) as error:
            self.error = error  # of `bodies`, which may also have awaited a cancelled task
        finally:
            feeder = asyncio.current_task()
            assert feeder is not None
            if feeder.cancelling():
                self.error = GroupUnreachableError(CLOSED)
            self._send_next()
            self._is_complete = True
            self._changed.set()

    def end(self, feeder: "asyncio.Task[None]") -> None:
        """Expect no further body from a feeder that was cancelled before it began."""
        if feeder.cancelled():
            self.error = GroupUnreachableError(CLOSED)
            self._is_complete = True
            self._changed.set()

    @property
    def oldest(self) -> Batch | None:
        """The oldest started batch; None if there is none at the moment."""
        return self._batches[0] if self._batches else None

    async def first(self) -> Batch | None:
        """Wait for a started batch and return the oldest one; return None after the last."""
        while not self._batches and not self._is_complete:
            self._changed.clear()
            await self._changed.wait()
        return self.oldest

    def remove_first(self) -> None:
        """Remove the oldest batch, which makes room."""
        batch = self._batches.popleft()
        self._count -= len(batch.bodies)
        self._bytes -= batch.body_bytes
        self._has_room.set()

    def cancel_all(self) -> None:
        """Cancel all batches and start no further one."""
        self._is_closed = True
        for batch in self._batches:
            batch.cancel()

    async def _wait_for_room(self) -> None:
        while self._count >= self._bodies_max or self._bytes >= self._bytes_max:
            self._send_next()
            self._has_room.clear()
            await self._has_room.wait()

    def _add(self, body: bytes) -> None:
        """Add a body to the next batch, which starts when full or at the end of this loop turn."""
        if not isinstance(body, bytes):
            raise body_type_error(body)
        size = len(body)
        if size >= batches.BODY_BYTES_MAX:
            self._send_next()  # a large body gets a batch of its own
        self._next.append(body)
        self._next_bytes += size
        self._count += 1
        self._bytes += size
        if len(self._next) >= self._batch_bodies_max or self._next_bytes >= batches.BODY_BYTES_MAX:
            self._send_next()
        elif len(self._next) == 1:
            self._loop.call_soon(self._send_next)

    def _send_next(self) -> None:
        if not self._next or self._is_closed:
            return
        bodies, self._next = self._next, []
        body_bytes, self._next_bytes = self._next_bytes, 0
        self._batches.append(Batch(self._starter, bodies, body_bytes, self._deadline_s))
        self._changed.set()
