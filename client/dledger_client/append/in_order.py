"""Appending bodies with one request in flight at a time, which keeps their order.

A request that is refused for the moment waits before it is sent again. Other requests that are in
flight meanwhile would overtake it.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol

from dledger_client.append import batches
from dledger_client.append.batches import AppendStarter, outcomes_of_all
from dledger_client.append.outcomes import Acknowledged, Outcome
from dledger_client.calls.call import Call, must_be_split


class OrderedStarter(AppendStarter, Protocol):
    """Starts appends one after another; implemented by Session."""

    @property
    def ordered_bodies_max(self) -> int:
        """How many bodies may share a request at the moment."""

    def start_ordered_batch(self, bodies: Sequence[bytes], deadline_s: float | None) -> Call:
        """Start to append bodies with one request, whose `parts` the caller starts."""

    def start_part(self, part: Call, deadline_s: float | None) -> None:
        """Start to append one body of a batch that a member refused."""

    def drop_parts(self, parts: Iterable[Call]) -> None:
        """Give up parts that were not started."""


async def append_in_order(
    starter: OrderedStarter, bodies: Sequence[bytes], deadline_s: float | None
) -> AsyncGenerator[Outcome, None]:
    """Append each body and yield one outcome for each, up to the first that failed.

    The next request begins when the caller fetches the outcome of its first body. No body after one
    that failed is sent, except in the same request. Raises TypeError or ValueError if an argument
    is invalid.
    """
    batches.check_batch(bodies)
    number = 0
    alone_before = 0  # bodies before this one are sent one by one
    parts: deque[Call] = deque()
    call: Call | None = None
    try:
        while number < len(bodies):
            if parts:
                call = parts.popleft()
                starter.start_part(call, deadline_s)
            elif (most := starter.ordered_bodies_max) > 1 and number >= alone_before:
                batch = bodies[number : number + _count_that_shares(bodies, number, most)]
                call = starter.start_ordered_batch(batch, deadline_s)
            else:
                call = starter.start_append(bodies[number], deadline_s)
            answer = await call.answer
            if must_be_split(call, answer):
                parts.extend(call.parts)
                alone_before = number + call.entry_count
                continue
            for outcome in outcomes_of_all(number, call.entry_count, call, answer):
                yield outcome
                if not isinstance(outcome, Acknowledged):
                    return
            number += call.entry_count
    finally:
        if call is not None and not call.answer.done():
            call.cancel()
        starter.drop_parts(parts)


def _count_that_shares(bodies: Sequence[bytes], first: int, most: int) -> int:
    """Return how many bodies from `first` on share a request: those that fit, or one."""
    size_bytes = 0
    for count, body in enumerate(bodies[first : first + most]):
        size_bytes += len(body)
        if size_bytes > batches.BODY_BYTES_MAX:
            return max(1, count)
    return min(len(bodies) - first, most)
