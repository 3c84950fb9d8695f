"""Convert memberships between the core's type and the bodies of entries."""

from collections.abc import Iterator

from dledger_formats.log import disk, memberships
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Buffer
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.store.log.entry_runs import EntryRun


def body_of(membership: Membership) -> bytes:
    """Encode the body of a membership entry."""
    return memberships.encode(membership.voters, membership.learners)


def membership_of(body: Buffer) -> Membership:
    """Decode the body of a membership entry. Raises ValueError."""
    return Membership(*memberships.decode(body))


def memberships_of(run: EntryRun) -> Iterator[MembershipEntry]:
    """Yield the membership entries of a pushed run. Raises ValueError if one is malformed."""
    for entry in run.channels:
        if memberships.is_membership(entry.magic, entry.channel):
            first_index = disk.unpack_index_unit(run.units, 0).index
            unit = disk.unpack_index_unit(
                run.units, (entry.first_index - first_index) * INDEX_UNIT_SIZE
            )
            at = unit.pos - run.pos
            body = memoryview(run.data)[at + ENTRY_HEADER_SIZE : at + unit.size]
            yield MembershipEntry(entry.first_index, membership_of(body))
