"""Reading many entries: several requests in flight, entries in order and without a gap."""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeAlias

from dledger_client.calls.call import Call
from dledger_client.errors import BadAnswerError, ClientError, NoEntryError
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.requests import DLedgerResponseCode, GetEntriesResponse, Message

ANSWER_BYTES: Final = 256 * 1024
"""Bytes of bodies that one request asks for."""
SINGLES_IN_FLIGHT: Final = 64
"""Requests in flight while each response contains one entry, as those of Java servers do."""
BATCHES_IN_FLIGHT: Final = 8
"""Requests in flight while responses contain several entries."""

_Ahead: TypeAlias = deque[tuple[int, Call]]


async def read_range(
    start: Callable[[int], Call], first: int, last: int | None
) -> AsyncGenerator[DLedgerEntry, None]:
    """Yield the entries `first`..`last`, or to the end of the log if `last` is None.

    Requests in flight are as far apart as the last response contained entries. If a response
    contains fewer, the reader requests the gap; if it contains more, the reader skips the entries
    that it has already yielded. Raises NoEntryError if the log ends before `last` or begins after
    `first`.
    """
    ahead: _Ahead = deque()
    wanted, step = first, 0
    try:
        while last is None or wanted <= last:
            if not ahead or ahead[0][0] > wanted:
                ahead.appendleft((wanted, start(wanted)))
            _ask_ahead(ahead, start, step, last)
            begin, call = ahead.popleft()
            answer = await call.answer
            if last is None and _is_past_end(answer):
                return
            entries = entries_of(answer, begin)
            step = len(entries)
            for entry in entries[wanted - begin :]:
                if last is not None and entry.index > last:
                    return
                yield entry
                wanted = entry.index + 1
    finally:
        for _, call in ahead:
            call.answer.cancel()


def _ask_ahead(ahead: _Ahead, start: Callable[[int], Call], step: int, last: int | None) -> None:
    """Start further requests up to the limit; none before the first response."""
    in_flight_max = SINGLES_IN_FLIGHT if step == 1 else BATCHES_IN_FLIGHT
    begin = ahead[-1][0] + step
    while step and len(ahead) < in_flight_max and (last is None or begin <= last):
        ahead.append((begin, start(begin)))
        begin += step


def _is_past_end(answer: Message | ClientError) -> bool:
    return (
        isinstance(answer, NoEntryError) and answer.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE
    )


def entries_of(answer: Message | ClientError, begin: int) -> list[DLedgerEntry]:
    """Return the entries of the result of a GET; raise the result if it is an error.

    Raises BadAnswerError if they are not the requested entries, or a body is damaged.
    """
    if isinstance(answer, ClientError):
        raise answer
    assert isinstance(answer, GetEntriesResponse)
    if not answer.entries:
        raise BadAnswerError(
            f"the response for entry {begin} reports success but contains no entry"
        )
    return check_entries(answer.entries, begin)


def check_entries(entries: list[DLedgerEntry], begin: int) -> list[DLedgerEntry]:
    """Return `entries` if they begin at `begin`, have no gap and match their checksums.

    Raises BadAnswerError otherwise.
    """
    for index, entry in enumerate(entries, begin):
        if entry.index != index:
            raise BadAnswerError(f"requested entry {index}, received entry {entry.index}")
        if not entry.is_intact:
            raise BadAnswerError(f"the body of entry {index} does not match its checksum")
    return entries
