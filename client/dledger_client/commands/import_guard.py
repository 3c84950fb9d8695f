"""Checks that no other client appends to the group of an import, unless `--append` is given.

The group is checked before the import registers its producer, again after that, and wherever the
indexes of imported entries are not consecutive. So an entry of another client is found no matter
when it was appended, and no matter what the record of an earlier run of the import contains.
"""

import contextlib

from dledger_client.client import DLedgerClient
from dledger_client.commands.exits import UsageError
from dledger_formats.log import disk
from dledger_formats.log.channels import number_of


async def require_empty(client: DLedgerClient) -> None:
    """Raise UsageError if a client has appended to the group."""
    bounds = await client.bounds()
    found = bounds.begin_index or await _foreign_entry(client, 0, bounds.end_index, None)
    if found is not None:
        raise UsageError(
            f"group {client.group} is not empty: it has the entries {bounds.begin_index} to "
            f"{bounds.end_index}; nothing was imported. With --append, the import comes after them"
        )


async def require_own_entries(
    client: DLedgerClient, first: int, last: int | None, registration: int
) -> None:
    """Raise UsageError if entries of another client are among `first`..`last`.

    `last` is None for the end of the log; `registration` is the index of the import's producer.
    """
    bounds = await client.bounds()
    end = bounds.end_index if last is None else last
    number = number_of((await client.get(registration)).channel)
    found = await _foreign_entry(client, max(first, bounds.begin_index), end, number)
    if found is not None:
        raise UsageError(
            f"entry {found} of group {client.group} is not of this import: another client appends "
            "to the group. With --append, the import continues after what others have appended"
        )


async def _foreign_entry(
    client: DLedgerClient, first: int, last: int, number: int | None
) -> int | None:
    """Return the index of the first normal entry without this producer's number."""
    if first > last:
        return None
    async with contextlib.aclosing(client.get_range(first, last)) as entries:
        async for entry in entries:
            is_own = number is not None and number_of(entry.channel) == number
            if entry.magic == disk.NORMAL and not is_own:
                return entry.index
    return None
