"""Reads whose error says what the log holds, if it does not hold the entry that was asked for."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from dledger_client.errors import ClientError, NoEntryError
from dledger_client.read.log_reader import LogReader
from dledger_client.read.tail import LogBounds, fetch_bounds
from dledger_formats.protocol.entry import DLedgerEntry

BOUNDS_WAIT_S: Final = 1.0
"""How long an error waits for the bounds of the log at most."""


async def entry(reader: LogReader, index: int) -> DLedgerEntry:
    """Read one entry. Raises NoEntryError, with the bounds of the log if a server tells them."""
    try:
        return await reader.get(index)
    except NoEntryError as error:
        raise await _with_bounds(reader, error) from error


async def entries(
    reader: LogReader, first: int, last: int | None
) -> AsyncGenerator[DLedgerEntry, None]:
    """Read the entries of a range one by one. Raises NoEntryError as `entry` does."""
    try:
        # Not by `reader.get_range`: another generator in between costs time for each entry.
        async with aclosing(reader.read_batches(first, last)) as batches:
            async for batch in batches:
                for one in batch.entries():
                    yield one
    except NoEntryError as error:
        raise await _with_bounds(reader, error) from error


def contents(bounds: LogBounds) -> str:
    """Return what a log with these bounds holds, as text."""
    if bounds.end_index < bounds.begin_index:
        return "the log is empty"
    return f"the log holds the entries {bounds.begin_index} to {bounds.end_index}"


async def _with_bounds(reader: LogReader, error: NoEntryError) -> NoEntryError:
    """Return the error with what the log holds. Java's servers do not tell it."""
    wait_s = BOUNDS_WAIT_S if reader.deadline_s is None else min(BOUNDS_WAIT_S, reader.deadline_s)
    try:
        bounds = await fetch_bounds(replace(reader, deadline_s=wait_s))
    except ClientError:
        return error
    return NoEntryError(error.code, f"{error}; {contents(bounds)}")
