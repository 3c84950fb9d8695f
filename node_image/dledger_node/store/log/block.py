"""Entries that a leader pushed: validated before the core sees them, then written unchanged.

A block holds entries only, without the blanks between segments. Members with the same segment size
roll to a new segment at the same place, so the position of an entry follows from the entry before.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from dledger_formats.log import disk
from dledger_formats.log.chain_link import chain_crc_before
from dledger_formats.log.disk import BLANK_SIZE_MIN, Buffer
from dledger_formats.log.scanning import scan_entries
from dledger_node.errors import LogsDifferError, RemoteProtocolError
from dledger_node.raft.membership import MembershipEntry
from dledger_node.store.derived.membership_bodies import memberships_of
from dledger_node.store.log.entry_runs import EntryRun, Link
from dledger_node.store.log.files import Beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sound entries of one term, as the leader stores them; created by `LogStore.check_block`."""

    first_index: int
    last_index: int
    term: int
    link: Link | None
    """The end of the log before the block at validation; None if the log lacked that entry."""
    runs: tuple[EntryRun, ...]
    memberships: tuple[MembershipEntry, ...] = ()
    """The memberships set by the entries; nearly always empty."""

    @property
    def beginning(self) -> Beginning:
        """The beginning of a log that holds this block and nothing before it."""
        before = chain_crc_before(disk.unpack_header(self.runs[0].data, 0))
        return Beginning(self.first_index, before)

    def runs_from(self, index: int) -> Iterator[EntryRun]:
        """Yield the runs from entry `index` on, for a log that holds the entries before it."""
        skipped = index - self.first_index
        for run in self.runs:
            if skipped < run.entry_count:
                yield run.without_first(skipped) if skipped else run
            skipped = max(0, skipped - run.entry_count)


def check_block(
    data: Buffer,
    *,
    first_index: int,
    last_index: int,
    term: int,
    segment_size: int,
    link: Link | None,
) -> Block:
    """Validate the entries first_index .. last_index of a push.

    `link` is the end of the log before them. If it is None, because the log does not hold that
    entry, the first entry's position and chain CRC are not checked. Raises RemoteProtocolError, and
    LogsDifferError if only the link is wrong.
    """
    view = memoryview(data)

    def judged(start: Link) -> tuple[EntryRun, ...]:
        return tuple(_judged_runs(view, first_index, last_index, term, segment_size, start))

    try:
        runs = judged(link or Link(disk.unpack_header(view, 0).pos, None))
        memberships = tuple(entry for run in runs for entry in memberships_of(run))
    except (disk.DamagedRecordError, ValueError) as error:
        message = f"pushed entries {first_index} to {last_index} of term {term}: {error}"
        if link is None:
            raise RemoteProtocolError(message) from None
        with contextlib.suppress(disk.DamagedRecordError, ValueError):
            judged(Link(disk.unpack_header(view, 0).pos, None))
            raise LogsDifferError(message) from None
        raise RemoteProtocolError(message) from None
    return Block(
        first_index=first_index,
        last_index=last_index,
        term=term,
        link=link,
        runs=runs,
        memberships=memberships,
    )


def _judged_runs(
    data: memoryview, first_index: int, last_index: int, term: int, segment_size: int, link: Link
) -> Iterator[EntryRun]:
    at, index = 0, first_index
    pos, chain_crc = link
    while index <= last_index:
        size = disk.unpack_header(data, at).size
        if size < disk.ENTRY_HEADER_SIZE:  # such an entry would fit beyond the end of a segment
            raise disk.DamagedRecordError("bad_size", f"size {size} at byte {at}")
        pos = disk.place_entry(size, pos, segment_size)
        segment_left = segment_size - pos % segment_size - BLANK_SIZE_MIN
        scan = scan_entries(
            data,
            at,
            min(len(data), at + segment_left),
            index=index,
            term=term,
            pos=pos,
            chain_crc=chain_crc,
            count_max=last_index - index + 1,
        )
        if scan.next_index == index:
            assert scan.damage is not None
            raise scan.damage
        assert scan.chain_crc is not None
        yield EntryRun(pos, data[at : scan.end], scan.units, scan.chain_crc, scan.channels)
        pos += scan.end - at
        at, index, chain_crc = scan.end, scan.next_index, scan.chain_crc
    if at != len(data):
        raise disk.DamagedRecordError("bad_size", f"{len(data) - at} bytes follow the last entry")
