"""Reading many entries: several requests in flight, entries in order and without a gap."""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeAlias

from dledger_client.calls.call import Call
from dledger_client.errors import BadAnswerError, ClientError, NoEntryError, RefusedError
from dledger_client.read.entry_batch import EntryBatch
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import Message

RANGE_BYTES: Final = 1 << 20
"""Stored bytes that one READ_RANGE asks for."""
RANGES_IN_FLIGHT: Final = 4
"""READ_RANGE requests in flight."""
ANSWER_BYTES: Final = 256 * 1024
"""Bytes of bodies that one GET asks for."""
SINGLES_IN_FLIGHT: Final = 64
"""Requests in flight while each response contains one entry, as those of Java servers do."""
BATCHES_IN_FLIGHT: Final = 8
"""Requests in flight while responses to GET contain several entries."""

Start: TypeAlias = Callable[[int], Call]
"""Starts a request for the entries from an index on."""


async def read_batches(
    start_range: Start, start_get: Start, first: int, last: int | None
) -> AsyncGenerator[EntryBatch, None]:
    """Yield the entries `first`..`last`, or to the end of the log if `last` is None.

    Reads with READ_RANGE, and with GET if the server does not have that request. A range with a
    damaged entry is read with GET, too: the member then finds the damage and leaves service, and
    the request is sent again to the next leader. Raises NoEntryError if the log ends before `last`
    or begins after `first`.
    """
    wanted, ahead = first, _Ahead(start_range, RANGES_IN_FLIGHT, RANGES_IN_FLIGHT, last)
    try:
        while last is None or wanted <= last:
            begin, answer = await ahead.answer(wanted)
            if last is None and _is_past_end(answer):
                return
            if ahead.starts_with(start_range) and _is_unsupported(answer):
                ahead.close()
                ahead = _Ahead(start_get, BATCHES_IN_FLIGHT, SINGLES_IN_FLIGHT, last)
                continue
            try:
                batch = EntryBatch.of(answer, begin)
            except BadAnswerError:
                if not ahead.starts_with(start_range):
                    raise
                batch = EntryBatch.of(await start_get(begin).answer, begin)
            ahead.step = len(batch)
            part = batch.within(wanted, last)
            if part is not None:
                wanted = part.last_index + 1
                yield part
    finally:
        ahead.close()


class _Ahead:
    """The requests in flight, in the order of their indexes.

    Their distance is the number of entries in the last response. If a response contains fewer, the
    gap is requested; if it contains more, the reader skips what it has already yielded.
    """

    def __init__(
        self, start: Start, in_flight_max: int, singles_in_flight_max: int, last: int | None
    ) -> None:
        """`singles_in_flight_max` applies while each response contains one entry."""
        self.step = 0
        """The number of entries of the last response; 0 before the first."""
        self._start = start
        self._in_flight_max = in_flight_max
        self._singles_in_flight_max = singles_in_flight_max
        self._last = last
        self._calls: deque[tuple[int, Call]] = deque()

    def starts_with(self, start: Start) -> bool:
        """Return whether this function starts the requests."""
        return self._start is start

    async def answer(self, wanted: int) -> tuple[int, Message | ClientError]:
        """Return the next response and its index, after starting further requests."""
        calls = self._calls
        if not calls or calls[0][0] > wanted:
            calls.appendleft((wanted, self._start(wanted)))
        in_flight_max = self._singles_in_flight_max if self.step == 1 else self._in_flight_max
        begin = calls[-1][0] + self.step
        while (
            self.step and len(calls) < in_flight_max and (self._last is None or begin <= self._last)
        ):
            calls.append((begin, self._start(begin)))
            begin += self.step
        begin, call = calls.popleft()
        return begin, await call.answer

    def close(self) -> None:
        """Stop waiting for the responses."""
        for _, call in self._calls:
            call.answer.cancel()
        self._calls.clear()


def _is_past_end(answer: Message | ClientError) -> bool:
    return (
        isinstance(answer, NoEntryError) and answer.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE
    )


def _is_unsupported(answer: Message | ClientError) -> bool:
    return isinstance(answer, RefusedError) and answer.code is DLedgerResponseCode.UNSUPPORTED
