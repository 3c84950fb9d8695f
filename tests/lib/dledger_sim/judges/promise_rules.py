"""The judge of promises: terms, votes, and members whose disk was lost or rolled back."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dledger_node.raft.membership import Membership
from dledger_node.raft.ready import HardState
from dledger_sim.group.disk import Entry, SimDisk
from dledger_sim.judges.rot_rules import RotRules
from dledger_sim.judges.violation import ViolationError


class PromiseRules:
    """Remembers the terms and votes that members saved or sent, across their crashes."""

    def __init__(
        self, disks: Mapping[str, SimDisk], committed: Sequence[Entry], rot: RotRules
    ) -> None:
        """`committed` is the checker's committed log, which grows."""
        self.terms = dict.fromkeys(disks, 0)
        """The newest term that each member has saved."""
        self.votes: dict[tuple[str, int], str] = {}
        """The candidate that a member voted for, by member and term."""
        self._disks = disks
        self._committed = committed
        self._rot = rot
        self._joining = set(disks)
        self.departures: Counter[str] = Counter()
        """For each member, the number of committed memberships without it (AsyncFlush only)."""
        self.outside: set[str] = set()
        """The members whose removal is committed, or that were never added (AsyncFlush only)."""

    def lost_volume(self, member_id: str) -> None:
        """Note that a member's disk is empty or damaged; its promises to others still hold.

        A vote for itself is not such a promise: it elects a leader only together with the votes of
        others, and these others know its term.
        """
        self.terms[member_id] = self._disks[member_id].hard_state.term
        self._joining.add(member_id)
        for vote, candidate_id in list(self.votes.items()):
            if vote[0] == candidate_id == member_id:
                del self.votes[vote]

    def restored_volume(self, member_id: str) -> None:
        """Note that a member's disk was rolled back: its term may decrease to the disk's term."""
        self.lost_volume(member_id)
        self._joining.discard(member_id)

    def committed_membership(self, membership: Membership) -> None:
        """Note that members outside of this membership owe nothing that their disks have lost.

        A majority without them has committed their removal, and holds all entries before it.
        """
        self.outside = self._disks.keys() - set(membership.members)
        self.departures.update(self.outside)
        for member_id in self.outside:
            self.lost_power(member_id)

    def lost_power(self, member_id: str) -> None:
        """Note that a disk has lost its end; a member outside of the group owes nothing of it."""
        disk = self._disks[member_id]
        if member_id in self.outside:
            disk.lost.clear()
            disk.forgotten = None if disk.forgotten is None else []

    def saved(self, member_id: str, hard_state: HardState) -> None:
        """Check rules 2, 3 and 16: terms do not decrease, votes do not change, voters are whole."""
        disk = self._disks[member_id]
        if hard_state.promised_end is not None:
            self._remember_lost(disk)
        elif not hard_state.joining:
            self._joining.discard(member_id)
            self._admitted(disk, member_id)
            self._rot.saved(member_id)
        elif member_id not in self._joining:
            self._joins_again(disk, member_id)
        if hard_state.term < self.terms[member_id]:
            raise ViolationError(
                "a term never decreases", f"{member_id} decreased its term to {hard_state.term}"
            )
        self.terms[member_id] = hard_state.term
        if hard_state.vote_for is not None:
            self._voted(member_id, hard_state.term, hard_state.vote_for)

    def sends_vote(self, member_id: str, term: int, candidate_id: str) -> None:
        """Check rules 2, 10 and 16: a vote that is sent is on disk, or its term is over."""
        disk = self._disks[member_id]
        self.trusts_disk(member_id)
        hard_state = disk.hard_state
        if hard_state.joining:
            raise ViolationError(
                "a voter holds every committed entry that it confirmed",
                f"{member_id} votes while it joins",
            )
        self._has_what_was_lost(disk, member_id, candidate_id)
        if hard_state.term == term and hard_state.vote_for != candidate_id:
            raise ViolationError(
                "a vote is saved before it is sent",
                f"{member_id} sends a vote of term {term} that it has not saved",
            )
        self._voted(member_id, term, candidate_id)

    def trusts_disk(self, member_id: str) -> None:
        """Check rule 16 for a rolled-back disk when its member makes its first promise."""
        disk = self._disks[member_id]
        if disk.forgotten is not None:
            self._remember_lost(disk)
            if disk.hard_state.promised_end is None:
                self._admitted(disk, member_id)

    def _admitted(self, disk: SimDisk, member_id: str) -> None:
        """Check rule 16: a voter holds every committed entry that it ever confirmed."""
        while disk.lost:
            last = self._last_committed(disk.lost.pop())
            if last is not None and not holds(disk.durable, *last):
                raise ViolationError(
                    "a voter holds every committed entry that it confirmed",
                    f"{member_id} becomes a voter without entry {last[0]}",
                )

    def _has_what_was_lost(self, disk: SimDisk, member_id: str, candidate_id: str) -> None:
        """Check rule 16: a voter that lost entries votes only for a member that has them."""
        candidate_log = self._disks[candidate_id].durable
        for lost in disk.lost:
            last = self._last_committed(lost)
            if last is not None and not holds(candidate_log, *last):
                raise ViolationError(
                    "a voter holds every committed entry that it confirmed",
                    f"{member_id} lost entry {last[0]}, and votes for {candidate_id}, which "
                    "lacks it",
                )

    def _last_committed(self, lost: Sequence[Entry]) -> tuple[int, int] | None:
        """Return index and chain of the last committed entry in a log that was lost."""
        index = min(len(lost), len(self._committed)) - 1
        while index >= 0 and lost[index].chain != self._committed[index].chain:
            index -= 1
        return (index, lost[index].chain) if index >= 0 else None

    @staticmethod
    def _remember_lost(disk: SimDisk) -> None:
        """Note that a member has noticed what its disk lost."""
        if disk.forgotten is not None:
            disk.lost.append(disk.forgotten)
            disk.forgotten = None

    def _joins_again(self, disk: SimDisk, member_id: str) -> None:
        """Check rule 25: no member treats an intact disk as rolled back."""
        if disk.forgotten is None:
            raise ViolationError(
                "an intact disk is not treated as rolled back",
                f"{member_id} joins although its disk lacks nothing",
            )
        self._joining.add(member_id)
        self._remember_lost(disk)

    def _voted(self, member_id: str, term: int, candidate_id: str) -> None:
        if self.votes.setdefault((member_id, term), candidate_id) != candidate_id:
            raise ViolationError("one vote per term", f"{member_id} voted twice in term {term}")


def holds(log: Sequence[Entry], index: int, chain: int) -> bool:
    """Return whether a log holds this entry, and therefore all entries before it."""
    return index < len(log) and log[index].chain == chain
