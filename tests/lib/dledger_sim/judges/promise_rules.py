"""The judge of promises: terms, votes, and members whose disk was lost or rolled back."""

from collections.abc import Mapping, Sequence

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

    def saved(self, member_id: str, hard_state: HardState) -> None:
        """Check rules 2, 3 and 16: terms do not decrease, votes do not change, voters are whole."""
        disk = self._disks[member_id]
        if not hard_state.joining:
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
            disk.lost.append(disk.forgotten)
            disk.forgotten = None
            self._admitted(disk, member_id)

    def _admitted(self, disk: SimDisk, member_id: str) -> None:
        """Check rule 16: a voter holds every committed entry that it ever confirmed."""
        while disk.lost:
            lost = disk.lost.pop()
            index = min(len(lost), len(self._committed)) - 1
            while index >= 0 and lost[index].chain != self._committed[index].chain:
                index -= 1
            if index >= 0 and not holds(disk.durable, index, lost[index].chain):
                raise ViolationError(
                    "a voter holds every committed entry that it confirmed",
                    f"{member_id} becomes a voter without entry {index}",
                )

    def _joins_again(self, disk: SimDisk, member_id: str) -> None:
        """Check rule 25: no member treats an intact disk as rolled back."""
        if disk.forgotten is None:
            raise ViolationError(
                "an intact disk is not treated as rolled back",
                f"{member_id} joins although its disk lacks nothing",
            )
        self._joining.add(member_id)
        disk.lost.append(disk.forgotten)
        disk.forgotten = None

    def _voted(self, member_id: str, term: int, candidate_id: str) -> None:
        if self.votes.setdefault((member_id, term), candidate_id) != candidate_id:
            raise ViolationError("one vote per term", f"{member_id} voted twice in term {term}")


def holds(log: Sequence[Entry], index: int, chain: int) -> bool:
    """Return whether a log holds this entry, and therefore all entries before it."""
    return index < len(log) and log[index].chain == chain
