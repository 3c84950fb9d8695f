"""The judge: looks at disks, messages and what members tell their clients, never into a core.

Every check is O(1) for each entry or message. Two logs are equal up to an index when their digests
there are equal (`Entry.chain`).
"""

from collections.abc import Mapping

from dledger_node.raft.messages import (
    HeartBeatRequest,
    Message,
    PushResponse,
    PushResult,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import HardState
from dledger_sim.disk import Entry, SimDisk
from dledger_sim.violation import ViolationError


class Checker:
    """All that was ever promised in one run."""

    def __init__(self, disks: Mapping[str, SimDisk]) -> None:
        self._disks = disks
        self._leaders: dict[int, str] = {}
        self._reigning: dict[str, int] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._chains: dict[tuple[int, int], int] = {}
        self._terms = dict.fromkeys(disks, 0)
        self._committed_indexes = dict.fromkeys(disks, -1)
        self.committed: list[Entry] = []
        """The one true log, as far as anybody has called it committed."""
        self.acknowledged_count = 0
        self.newest_leader_id = ""
        """The leader that showed itself last."""

    @property
    def leader_count(self) -> int:
        """How many terms had a leader."""
        return len(self._leaders)

    def started(self, member_id: str, committed_index: int) -> None:
        """A member starts, or starts again, knowing this much as committed."""
        self._committed_indexes[member_id] = committed_index

    def died(self, member_id: str) -> None:
        """A member is dead, and its disk what the crash left of it."""
        self._reigning.pop(member_id, None)

    def saved(self, member_id: str, hard_state: HardState) -> None:
        """A term never goes back, and a vote never changes within one."""
        if hard_state.term < self._terms[member_id]:
            raise ViolationError(f"{member_id} went back to term {hard_state.term}")
        self._terms[member_id] = hard_state.term
        if hard_state.vote_for is not None:
            self._voted(member_id, hard_state.term, hard_state.vote_for)

    def wrote(self, member_id: str, entry: Entry) -> None:
        """One index and term have one entry, with one history (log matching)."""
        index = len(self._disks[member_id].cached) - 1
        chain = self._chains.setdefault((index, entry.term), entry.chain)
        if chain != entry.chain:
            raise ViolationError(f"{member_id} wrote another entry {index} of term {entry.term}")

    def truncating(self, member_id: str, first_index: int) -> None:
        """What anybody knows as committed is removed nowhere."""
        if first_index <= self._committed_indexes[member_id]:
            raise ViolationError(
                f"{member_id} truncates at {first_index}, which it knows as committed"
            )
        if first_index < len(self.committed):
            log = self._disks[member_id].cached
            if log[first_index].chain == self.committed[first_index].chain:
                raise ViolationError(f"{member_id} truncates the committed entry {first_index}")

    def sending(self, message: Message) -> None:
        """What a message promises is on its sender's disk."""
        disk = self._disks[message.sender]
        if message.term > disk.hard_state.term:
            raise ViolationError(
                f"{message.sender} speaks for a term that it has not saved: {message}"
            )
        match message:
            case VoteRequest():
                self._promised_vote(message.sender, message.term, message.sender)
            case VoteResponse(result=VoteResult.ACCEPT):
                self._promised_vote(message.sender, message.requested_term, message.receiver)
            case HeartBeatRequest():
                self._led(message.sender, message.term)
            case PushResponse(result=PushResult.SUCCESS, match_index=match_index):
                if match_index >= len(disk.durable):
                    raise ViolationError(
                        f"{message.sender} confirms what is not durable: {message}"
                    )
                self._confirmed(message, disk)
            case _:
                pass

    def leads(self, member_id: str, term: int) -> None:
        """One leader a term, and it holds all that was committed before (completeness)."""
        self._reigning[member_id] = term
        if self._led(member_id, term) and self.committed:
            log = self._disks[member_id].cached
            last_index = len(self.committed) - 1
            if last_index >= len(log) or log[last_index].chain != self.committed[-1].chain:
                raise ViolationError(f"{member_id} leads term {term} without entry {last_index}")

    def told(self, member_id: str, committed_index: int) -> None:
        """The committed index only rises; what it covers is here, the same everywhere, and durable
        on a majority by the time anybody says so.
        """
        log = self._disks[member_id].cached
        if committed_index < self._committed_indexes[member_id]:
            raise ViolationError(f"{member_id} went back to the committed index {committed_index}")
        if committed_index >= len(log):
            raise ViolationError(
                f"{member_id} committed {committed_index} and ends at {len(log) - 1}"
            )
        self._committed_indexes[member_id] = committed_index
        if committed_index < 0:
            return
        known_count = len(self.committed)
        if committed_index >= known_count:
            self.committed += log[known_count : committed_index + 1]
            self._durable_on_majority(member_id, committed_index)
        if log[committed_index].chain != self.committed[committed_index].chain:
            raise ViolationError(f"{member_id} committed another entry {committed_index}")

    def acknowledged(self, first_index: int, bodies: tuple[int, ...]) -> None:
        """A client was told that its entries are stored, and where."""
        held = self.committed[first_index : first_index + len(bodies)]
        if tuple(entry.body for entry in held) != bodies:
            raise ViolationError(f"acknowledged entries are not at {first_index}")
        self.acknowledged_count += len(bodies)

    def _voted(self, member_id: str, term: int, candidate_id: str) -> None:
        if self._votes.setdefault((member_id, term), candidate_id) != candidate_id:
            raise ViolationError(f"{member_id} voted twice in term {term}")

    def _promised_vote(self, member_id: str, term: int, candidate_id: str) -> None:
        """A vote counts once it is told; it must be on disk, or belong to a term that is past."""
        hard_state = self._disks[member_id].hard_state
        if hard_state.term == term and hard_state.vote_for != candidate_id:
            raise ViolationError(f"{member_id} tells a vote of term {term} that it has not saved")
        self._voted(member_id, term, candidate_id)

    def _led(self, member_id: str, term: int) -> bool:
        """Note a leader; true when its term had none yet."""
        new = term not in self._leaders
        leader_id = self._leaders.setdefault(term, member_id)
        if leader_id != member_id:
            raise ViolationError(f"{leader_id} and {member_id} both lead term {term}")
        if new:
            self.newest_leader_id = member_id
        return new

    def _confirmed(self, message: PushResponse, disk: SimDisk) -> None:
        """A confirmed log is the leader's; looked at while that life and term of it go on, in
        which its log only grows.
        """
        index, term = message.match_index, message.requested_term
        leader = self._disks[message.receiver]
        if self._reigning.get(message.receiver) != term or leader.hard_state.term != term:
            return
        if index < 0:
            return
        if index >= len(leader.cached) or leader.cached[index].chain != disk.durable[index].chain:
            raise ViolationError(f"{message.sender} confirms another entry {index}: {message}")

    def _durable_on_majority(self, member_id: str, index: int) -> None:
        chain = self.committed[index].chain
        holders = [
            disk
            for disk in self._disks.values()
            if index < len(disk.durable) and disk.durable[index].chain == chain
        ]
        if 2 * len(holders) <= len(self._disks):
            raise ViolationError(
                f"{member_id} committed {index}, durable on {len(holders)} of {len(self._disks)}"
            )
