"""The entries of a running group, in an order that no change of leader can disturb.

A member of this project answers with committed entries only. A Java leader also answers with
entries that a later leader may replace. Two logs that have an entry with the same index and term
are equal up to it (Raft's Log Matching). So it is enough to reread the last exported entry before
the next ones: if it is still there, everything before it is. Entries that were read while the
client changed leaders are reread, and so is the last entry of each term, because it and the next
one may have come from two leaders.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError, NoEntryError
from dledger_client.exports.records import ExportError, is_mark
from dledger_formats.log import disk
from dledger_formats.log.checksum import crc32
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry

HELD_BYTES: Final = 8 << 20
"""Bytes of entries that are held back until they are known to come from one leader."""
ENTRY_BYTES: Final = 512
"""Each entry counts as this much more than its body; its object needs about 250 bytes."""

CHECK_PAUSE_S: Final = 0.2
"""Pause before checking again whether a mark is committed."""
MEMBER_ANSWER_S: Final = 2.0
"""How long a member may take to name its leader."""
WAIT_NOTICE_S: Final = 1.0
"""How long a mark is checked before `OnWait` is called."""

OnWait: TypeAlias = Callable[[str], object]
"""Called once with a sentence for humans, if it takes long until a mark is sure."""


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
    client: DLedgerClient,
    first: int,
    taken: Taken | None,
    mark: bytes | None,
    on_wait: OnWait = lambda _: None,
) -> AsyncGenerator[list[DLedgerEntry], None]:
    """Yield the entries from `first` on, and new ones as they are appended.

    Ends after the first entry that is `mark`, once that is sure (`is_sure`). Raises ExportError as
    `settled_entries` does.
    """
    while True:
        found = None
        async with aclosing(settled_entries(client, first, None, taken)) as runs:
            async for entries in runs:
                at = _place_of_mark(entries, mark)
                if before := entries[:at]:
                    yield before
                    taken = Taken.of_entry(before[-1])
                    first = taken.index + 1
                if at is not None:
                    found = entries[at]
                    break
        if found is None:
            async with aclosing(client.tail(first)) as new:
                await anext(new)  # it is read again later, after the entry before it
        elif await is_sure(client, Taken.of_entry(found), on_wait):
            yield [found]
            return


def _place_of_mark(entries: list[DLedgerEntry], mark: bytes | None) -> int | None:
    places = (n for n, one in enumerate(entries) if is_mark(one.magic, one.body, mark))
    return next(places, None)


async def is_sure(client: DLedgerClient, taken: Taken, on_wait: OnWait) -> bool:
    """Wait until the log has everything that was acknowledged before an entry was appended.

    Returns False if the log has lost the entry. Members of this project answer with committed
    entries only. A Java group has everything if a majority of its members names the leader that has
    the entry. An earlier majority holds what was acknowledged. At least one member is in both
    majorities, and it does not name a leader of an earlier term. A deposed leader that does not
    know of its successor may have the entry, too, but no majority names it.
    """
    now_s = asyncio.get_running_loop().time
    notice_at_s = now_s() + WAIT_NOTICE_S
    while True:
        group = await client.metadata()
        is_of_java = group.term < 0
        peers = group.peers if is_of_java else {}
        named = await asyncio.gather(
            *(_leader_named_by(client, member, address) for member, address in peers.items())
        )
        if not await _has(client, taken):
            return False
        leader = client.leader_id
        if not is_of_java or 2 * named.count(leader) > len(peers):
            return True
        if now_s() >= notice_at_s:
            others = [member for member, name in zip(peers, named, strict=True) if name != leader]
            on_wait(
                f"entry {taken.index} is the mark; waiting until a majority of the {len(peers)} "
                f"members names {leader} as the leader: {', '.join(others)} did not"
            )
            notice_at_s = math.inf
        await asyncio.sleep(CHECK_PAUSE_S)


async def check_is_last(client: DLedgerClient, mark: bytes, mark_index: int) -> None:
    """Raise ExportError if a client has appended an entry after the mark.

    Further copies of the mark are allowed, because its append may have been repeated.
    """
    late = None
    async with aclosing(client.get_range(mark_index + 1)) as later:
        async for entry in later:
            if entry.magic == disk.NORMAL and entry.body != mark:
                late = entry.index
                break
    if late is not None:
        end = (await client.bounds()).end_index
        raise ExportError(
            f"entry {late} was appended after the mark, entry {mark_index}, and the log ends "
            f"with entry {end}. The export up to the mark is whole. Stop the program that still "
            "appends, append another mark, and export until that one; choose a text that no entry "
            "has"
        )


async def _has(client: DLedgerClient, taken: Taken) -> bool:
    """Return whether the log has an entry. Raises NoEntryError if the log begins after it."""
    try:
        return Taken.of_entry(await client.get(taken.index)) == taken
    except NoEntryError as error:
        if error.code is not DLedgerResponseCode.INDEX_OUT_OF_RANGE:
            raise
        return False


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
