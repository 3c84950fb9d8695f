"""Memberships as the core knows them, and as entries say them."""

from collections.abc import Iterator

from dledger_formats.log import disk, memberships
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Buffer
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.log.entry_runs import EntryRun


def body_of(membership: Membership) -> bytes:
    """The body of an entry that says this."""
    return memberships.encode(membership.voters, membership.learners)


def membership_of(body: Buffer) -> Membership:
    """What a body says; ValueError when it is none."""
    return Membership(*memberships.decode(body))


def memberships_of(run: EntryRun) -> Iterator[MembershipEntry]:
    """Those of a pushed run; ValueError when one cannot be read."""
    for entry in run.channels:
        if memberships.is_membership(entry.magic, entry.channel):
            first_index = disk.unpack_index_unit(run.units, 0).index
            unit = disk.unpack_index_unit(run.units, (entry.index - first_index) * INDEX_UNIT_SIZE)
            at = unit.pos - run.pos
            body = memoryview(run.data)[at + ENTRY_HEADER_SIZE : at + unit.size]
            yield MembershipEntry(entry.index, membership_of(body))
