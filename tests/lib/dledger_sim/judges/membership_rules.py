"""The judge of memberships: which voters count, and which changes a leader may make."""

from collections.abc import Mapping

from dledger_node.raft.membership import Membership
from dledger_sim.group.disk import Entry, SimDisk
from dledger_sim.group.membership_bodies import HIGHEST, body_of, membership_of
from dledger_sim.judges.violation import ViolationError


class MembershipRules:
    """Reads memberships from the logs on the disks, never from a core."""

    def __init__(self, first: Membership, disks: Mapping[str, SimDisk]) -> None:
        self._first = first
        self._disks = disks
        self._known: dict[str, tuple[Membership, Entry | None]] = {}
        """The membership of each core at its last comparison, and the log entry it came from."""
        self._written: dict[tuple[int, int], tuple[int, int]] = {}
        """Every change that a leader made, by index and term: its body, and the index of the
        previous change.
        """

    def current(self, member_id: str) -> Membership:
        """Return the membership in the last membership entry of a member's log."""
        disk = self._disks[member_id]
        indexes = disk.membership_indexes
        return membership_of(disk.cached[indexes[-1]].body) if indexes else self._first

    def changing(
        self, member_id: str, membership: Membership, term: int, committed_index: int
    ) -> None:
        """Check rules 19 to 21 when a leader writes a change; `committed_index` is the leader's."""
        disk = self._disks[member_id]
        before_index = disk.membership_indexes[-1] if disk.membership_indexes else -1
        if before_index > committed_index:
            raise ViolationError(
                "one membership change at a time",
                f"{member_id} writes a change while the change at {before_index} is not committed",
            )
        if committed_index < 0 or disk.cached[committed_index].term != term:
            raise ViolationError(
                "no membership change before an entry of the term is committed",
                f"{member_id} in term {term}, committed {committed_index}",
            )
        before = self.current(member_id)
        statuses = [_status(one, membership) for one in sorted(
            {*before.members, *membership.members}
        ) if _status(one, membership) != _status(one, before)]  # fmt: skip
        if len(statuses) != 1 or not set(membership.voters) <= set(before.members):
            raise ViolationError(
                "a membership change affects one member, and a new voter was a learner",
                f"{member_id} goes from {before} to {membership}",
            )
        self._written[len(disk.cached), term] = (body_of(membership), before_index)

    def knows(self, member_id: str, membership: Membership) -> None:
        """Check rule 22: a core's membership is the last one in its log.

        This runs after every step, so it compares only when one of the two has changed.
        """
        disk = self._disks[member_id]
        entry = disk.cached[disk.membership_indexes[-1]] if disk.membership_indexes else None
        known = self._known.get(member_id)
        if known is not None and known[0] is membership and known[1] is entry:
            return
        self._known[member_id] = (membership, entry)
        told = self.current(member_id)
        if membership != told:
            raise ViolationError(
                "the core's membership is the one in its log",
                f"{member_id} uses {membership}, its log has {told}",
            )

    def elected(self, member_id: str, term: int, votes: Mapping[tuple[str, int], str]) -> None:
        """Check rule 23: a leader has the votes of a majority, by the membership in its own log."""
        voters = self.current(member_id).voters
        count = sum(votes.get((voter_id, term)) == member_id for voter_id in voters)
        if 2 * count <= len(voters):
            raise ViolationError(
                "a leader has the votes of a majority of its voters",
                f"{member_id} leads term {term} with {count} votes of {voters}",
            )

    def hold_majority(self, holders: set[str], log: list[Entry], index: int) -> bool:
        """Return whether the holders of a newly committed entry are a majority (rule 9).

        The leader counts by the membership at the entry's index, or by the one later change that it
        has written.
        """
        at = index
        while at >= 0 and log[at].body > HIGHEST:
            at -= 1
        memberships = [membership_of(log[at].body) if at >= 0 else self._first]
        memberships += [
            membership_of(body)
            for (written_at, term), (body, before) in self._written.items()
            if before == at and written_at > index and term >= log[index].term
        ]
        return any(2 * len(holders & set(one.voters)) > len(one.voters) for one in memberships)


def _status(member_id: str, membership: Membership) -> tuple[bool, bool]:
    return member_id in membership.voters, member_id in membership.learners
