"""Following a log: the existing entries, then each new entry once it is committed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_client.errors import BadAnswerError, NoEntryError, RefusedError
from dledger_client.read.entry_batch import EntryBatch, check_entries
from dledger_client.read.log_reader import LogReader
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import ONLY_THE_ENDS

POLL_MIN_S: Final = 0.02
POLL_MAX_S: Final = 0.5
CATCH_UP_ENTRIES: Final = 1000
"""A reader further behind than this reads a range, with several requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """The first and the last index that can be read; for an empty log, end is below begin."""

    begin_index: int
    end_index: int


Sleep: TypeAlias = Callable[[float], Awaitable[None]]


async def tail(
    reader: LogReader, first: int | None, sleep: Sleep
) -> AsyncGenerator[DLedgerEntry, None]:
    """Yield the entries from `first` on, or those committed from now on if it is None, forever.

    Raises NoEntryError if the log begins after the next entry.
    """
    wanted = first
    try:
        if wanted is None:
            wanted = (await fetch_bounds(reader)).end_index + 1
        is_stored, pause_s = True, POLL_MIN_S
        now_s = asyncio.get_running_loop().time
        while True:
            asked_at_s = now_s()
            try:
                entries, last = await _next_entries(reader, wanted, is_stored=is_stored)
            except RefusedError as error:
                if not is_stored or error.code is not DLedgerResponseCode.UNSUPPORTED:
                    raise
                is_stored = False
                continue
            for entry in entries:
                yield entry
                wanted = entry.index + 1
            was_held = bool(entries) or now_s() - asked_at_s >= reader.wait_s / 2
            pause_s = await _pause(sleep, pause_s, was_held)
            if last - wanted >= CATCH_UP_ENTRIES:
                async with aclosing(reader.get_range(wanted, last)) as missing:
                    async for entry in missing:
                        yield entry
                        wanted = entry.index + 1
    except RefusedError as error:
        if error.code is not DLedgerResponseCode.UNSUPPORTED:
            raise
    if wanted is None:
        wanted = (await bounds(reader)).end_index + 1
    async for entry in _poll(reader, wanted, sleep):
        yield entry


async def _pause(sleep: Sleep, pause_s: float, was_held: bool) -> float:
    """Pause after a request that was not held, since too many wait at the member; return the next
    pause.
    """
    if was_held:
        return POLL_MIN_S
    await sleep(pause_s)
    return min(POLL_MAX_S, 2 * pause_s)


async def _next_entries(
    reader: LogReader, wanted: int, *, is_stored: bool
) -> tuple[list[DLedgerEntry], int]:
    """Wait for the next entries, stored or as JSON; also return the last committed index."""
    if not is_stored:
        found = await reader.follow(wanted)
        return check_entries(found.entries, wanted), found.committed_index
    answer = await reader.follow_stored(wanted)
    if not answer.stored:
        return [], answer.committed_index
    try:
        return EntryBatch.of(answer, wanted).entries(), answer.committed_index
    except BadAnswerError:
        # GET lets the member find the damage itself; another leader then has the entry.
        return [await reader.get(wanted)], answer.committed_index


async def _poll(reader: LogReader, wanted: int, sleep: Sleep) -> AsyncGenerator[DLedgerEntry, None]:
    """Poll a server that does not support FOLLOW, 2 to 50 times a second."""
    pause_s = POLL_MIN_S
    while True:
        async for entry in reader.get_range(wanted, None):
            yield entry
            wanted = entry.index + 1
            pause_s = POLL_MIN_S
        await sleep(pause_s)
        pause_s = min(POLL_MAX_S, 2 * pause_s)


async def bounds(reader: LogReader) -> LogBounds:
    """Return the bounds of the log; search for them if the server does not support FOLLOW."""
    try:
        return await fetch_bounds(reader)
    except RefusedError as error:
        if error.code is not DLedgerResponseCode.UNSUPPORTED:
            raise
    first_behind, step = 0, 1
    while await _compare(reader, first_behind) <= 0:
        first_behind += step
        step *= 2
    begin, end = await _first(reader, 0, first_behind, 0), await _first(reader, 0, first_behind, 1)
    return LogBounds(begin_index=begin, end_index=end - 1)


async def fetch_bounds(reader: LogReader) -> LogBounds:
    """Ask once for the bounds. Raises RefusedError if the server does not support FOLLOW."""
    answer = await reader.follow(ONLY_THE_ENDS)
    return LogBounds(
        begin_index=max(0, answer.ledger_begin_index), end_index=answer.committed_index
    )


async def _first(reader: LogReader, low: int, high: int, wanted: int) -> int:
    """Return the first index in low..high for which `_compare` is at least `wanted`.

    `_compare` must be at least `wanted` for `high`.
    """
    while low < high:
        middle = (low + high) // 2
        if await _compare(reader, middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


async def _compare(reader: LogReader, index: int) -> int:
    """Return -1 for an index before the log, 0 for one in the log, 1 for one past its end."""
    try:
        await reader.get(index)
    except NoEntryError as error:
        return -1 if error.code is DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN else 1
    return 0
