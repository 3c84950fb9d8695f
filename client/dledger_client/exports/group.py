"""The entries of a running group, in an order that no change of leader can disturb.

A member of this project answers with committed entries only. A Java leader also answers with
entries that a later leader may replace. Two logs that have an entry with the same index and term
are equal up to it (Raft's Log Matching). So it is enough to reread the last exported entry before
the next ones: if it is still there, everything before it is. Entries that were read while the
client changed leaders are reread, and so is the last entry of each term, because it and the next
one may have come from two leaders.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from typing import Final, NamedTuple

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError, NoEntryError
from dledger_client.exports.records import ExportError
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.entry import DLedgerEntry

HELD_BYTES: Final = 8 << 20
"""Bytes of entries that are held back until they are known to come from one leader."""
ENTRY_BYTES: Final = 512
"""Each entry counts as this much more than its body; its object needs about 250 bytes."""

CHECK_PAUSE_S: Final = 0.2
"""Pause before checking again whether a mark is committed."""
MEMBER_ANSWER_S: Final = 5.0
"""How long a member may take to name its leader."""


class Taken(NamedTuple):
    """The last entry that was exported."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    term: int
    body_crc: int

    @classmethod
    def of(cls, index: int, term: int, body: bytes) -> "Taken":
        """Return the values that distinguish an entry from any other."""
        return cls(index, term, crc32(body))

    @classmethod
    def of_entry(cls, entry: DLedgerEntry) -> "Taken":
        """Return the values that distinguish an entry of a log from any other."""
        return cls.of(entry.index, entry.term, entry.body)

    def check(self, found: DLedgerEntry) -> None:
        """Raise ExportError unless `found`, which is in the log now, is the same entry."""
        if Taken.of_entry(found) != self:
            raise self.replaced(f"entry {found.index} of term {found.term} is there")

    def replaced(self, what: str) -> ExportError:
        """Return the error for an entry that is no longer in the log."""
        return ExportError(
            f"entry {self.index} of term {self.term}, which was exported, is not in the log: "
            f"{what}. Either this is another log, or a new leader has replaced an entry that was "
            "not committed; remove the export and begin again"
        )


async def settled_entries(
    client: DLedgerClient, first: int, last: int | None, taken: Taken | None
) -> AsyncGenerator[list[DLedgerEntry], None]:
    """Yield the entries `first`..`last`, or to the end of the log, in lists.

    `taken` is the entry before the first one, if it was exported earlier. Raises ExportError if the
    group no longer has it, NoEntryError if the log ends before `last` or begins after `first`.
    """
    while True:
        changes = client.statistics.leader_changes
        held: list[DLedgerEntry] = []
        held_bytes, is_mixed = 0, False
        begin = first if taken is None else taken.index
        must_check = taken is not None
        async with aclosing(client.read_batches(begin, last)) as batches:
            async for batch in batches:
                entries = batch.entries()
                if must_check and taken is not None:
                    taken.check(entries[0])
                    entries, must_check = entries[1:], False
                held += entries
                held_bytes += sum(map(len, batch.bodies)) + ENTRY_BYTES * len(entries)
                if held_bytes < HELD_BYTES:
                    continue
                if is_mixed := not await _is_of_one_log(client, held, taken, changes):
                    break
                yield held
                taken = Taken.of_entry(held[-1])
                first, held, held_bytes = taken.index + 1, [], 0
        if must_check and taken is not None:
            raise taken.replaced("the log ends before it")
        if is_mixed or not await _is_of_one_log(client, held, taken, changes):
            continue
        if held:
            yield held
        return


async def following_entries(
    client: DLedgerClient, first: int, taken: Taken | None, mark: bytes | None
) -> AsyncGenerator[list[DLedgerEntry], None]:
    """Yield the entries from `first` on, and new ones as they are appended.

    Ends after the first entry whose body is `mark`, once that entry is sure to be committed. Raises
    ExportError as `settled_entries` does.
    """
    while True:
        is_sure = True
        async with aclosing(settled_entries(client, first, None, taken)) as runs:
            async for entries in runs:
                at = next((n for n, entry in enumerate(entries) if entry.body == mark), None)
                if at is not None:
                    if is_sure := await _is_sure(client, entries[at]):
                        yield entries[: at + 1]
                        return
                    break
                yield entries
                taken = Taken.of_entry(entries[-1])
                first = taken.index + 1
        if is_sure:
            async with aclosing(client.tail(first)) as new:
                await anext(new)  # it is read again later, after the entry before it
        else:
            await asyncio.sleep(CHECK_PAUSE_S)


async def _is_sure(client: DLedgerClient, entry: DLedgerEntry) -> bool:
    """Return whether the log has everything that was acknowledged before an entry was appended.

    The log does if a majority of the members names the leader that has the entry. An earlier
    majority holds what was acknowledged. At least one member is in both majorities, and it does not
    name a leader of an earlier term. A deposed leader that does not know of its successor may have
    the entry, too, but no majority names it.
    """
    peers = (await client.metadata()).peers
    named = await asyncio.gather(
        *(_leader_named_by(client, member, address) for member, address in peers.items())
    )
    try:
        term = (await client.get(entry.index)).term
    except NoEntryError:
        return False
    return term == entry.term and 2 * named.count(client.leader_id) > len(peers)


async def _leader_named_by(client: DLedgerClient, member: str, address: str) -> str | None:
    timing = Timing(deadline_s=MEMBER_ANSWER_S)
    try:
        async with DLedgerClient(
            f"{member}={address}", client.group, follow_leader=False, timing=timing
        ) as one:
            return (await one.metadata()).leader_id
    except ClientError:
        return None


async def _is_of_one_log(
    client: DLedgerClient, entries: list[DLedgerEntry], taken: Taken | None, changes: int
) -> bool:
    """Return whether entries that were read one after another were in one log."""
    terms = [(taken.index, taken.term)] if taken is not None else []
    terms += [(entry.index, entry.term) for entry in entries]
    for (index, term), (_, next_term) in pairwise(terms):
        if term != next_term and (await client.get(index)).term != term:
            return False
    return client.statistics.leader_changes == changes
