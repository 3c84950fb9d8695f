"""The checker of one run: inspects disks, messages and answers to clients, never a core.

Each check takes constant time per entry or message: two logs are equal up to an index when their
digests at that index are equal (`Entry.chain`). Rule numbers are those of docs/simulator.md. Rules
on terms, votes, pushes, memberships, states and rot have modules of their own.
"""

from collections.abc import Mapping

from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    Message,
    PushResponse,
    PushResult,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Entry, SimDisk
from dledger_sim.group.kinds import described
from dledger_sim.group.membership_bodies import HIGHEST, membership_of
from dledger_sim.group.snapshots import DIGESTS, States
from dledger_sim.judges.membership_rules import MembershipRules
from dledger_sim.judges.promise_rules import PromiseRules, holds
from dledger_sim.judges.push_rules import PushRules
from dledger_sim.judges.replay_rules import ReplayRules
from dledger_sim.judges.rot_rules import RotRules
from dledger_sim.judges.state_rules import StateRules
from dledger_sim.judges.violation import ViolationError


class Checker:
    """The committed log of one run, its leaders, and the judges of single subjects."""

    def __init__(
        self, conditions: Conditions, disks: Mapping[str, SimDisk], states: States = DIGESTS
    ) -> None:
        self._conditions = conditions
        self._disks = disks
        self.memberships = MembershipRules(Membership(conditions.voter_ids), disks)
        self._leaders: dict[int, str] = {}
        self._reigning: dict[str, int] = {}
        self._chains: dict[tuple[int, int], int] = {}
        self._committed_indexes = dict.fromkeys(disks, -1)
        self.committed: list[Entry] = []
        """The committed log: every entry that any member has reported as committed."""
        self.states = StateRules(disks, self.committed, states)
        self.rot = RotRules(disks)
        self.replays = ReplayRules(conditions, disks)
        self.promises = PromiseRules(disks, self.committed, self.rot)
        if conditions.async_flush:
            self.promises.committed_membership(Membership(conditions.voter_ids))
        self.pushes = PushRules(conditions)
        self._committed_in: list[int] = []
        """For each committed entry, the term of the member that first reported it as committed."""
        self.acknowledged_count = 0

    def reigns(self, member_id: str, term: int) -> bool:
        """Return whether a running member has led this term; its log only grows meanwhile."""
        return (
            self._reigning.get(member_id) == term and self._disks[member_id].hard_state.term == term
        )

    @property
    def leader_count(self) -> int:
        """Number of terms with a leader."""
        return len(self._leaders)

    def leader_of(self, term: int) -> str | None:
        """Return the leader of a term, if it has one."""
        return self._leaders.get(term)

    def started(self, member_id: str, committed_index: int) -> None:
        """Note that a member starts, with this committed index."""
        self._committed_indexes[member_id] = committed_index
        self.replays.started(member_id, committed_index)

    def died(self, member_id: str) -> None:
        """Note that a member has crashed."""
        self._reigning.pop(member_id, None)
        self.replays.died(member_id)

    def knows_reign(self, member_id: str, term: int) -> bool:
        """Return whether another member knows everything that this member committed as leader.

        A leader's own disk counts for its commits, but no confirmation records that. True if the
        member did not lead this term.
        """
        if self._leaders.get(term) != member_id:
            return True
        return any(
            disk.hard_state.term == term == self.promises.terms[member_id]
            and self._committed_indexes[name] >= len(self.committed) - 1
            for name, disk in self._disks.items()
            if name != member_id
        )

    def wrote(self, member_id: str, entry: Entry) -> None:
        """Check rule 4: an index and term identify one entry and its history (log matching)."""
        index = len(self._disks[member_id].cached) - 1
        chain = self._chains.setdefault((index, entry.term), entry.chain)
        if chain != entry.chain:
            raise ViolationError(
                "equal index and term mean equal logs",
                f"{member_id} wrote a different entry {index} of term {entry.term}",
            )

    def truncating(self, member_id: str, first_index: int) -> None:
        """Check rule 6: a member that knows the term of a commit, or a newer one, keeps the entry.

        All leaders that such a member follows hold the entry. A member in an older term may still
        lose its copy to an older leader; no leader has counted that copy.
        """
        if first_index <= self._committed_indexes[member_id]:
            raise ViolationError(
                "a committed entry is never removed",
                f"{member_id} truncates at {first_index}, which it knows to be committed",
            )
        if first_index < len(self.committed):
            log = self._disks[member_id].cached
            if (
                self.promises.terms[member_id] >= self._committed_in[first_index]
                and log[first_index].chain == self.committed[first_index].chain
            ):
                raise ViolationError(
                    "a committed entry is never removed",
                    f"{member_id} truncates the committed entry {first_index}",
                )

    def replacing(self, member_id: str, first_index: int) -> list[Entry]:
        """Check rules 17 and 28 for a log that starts over; return the entries before its first.

        The new log must begin with a committed entry, above the member's own committed index.
        """
        if self._conditions.snapshot_entries:
            self.states.replaces_log(member_id, first_index)
        if not self._committed_indexes[member_id] < first_index < len(self.committed):
            raise ViolationError(
                "a log is replaced only by newer committed entries",
                f"{member_id} begins at {first_index}",
            )
        return self.committed[:first_index]

    def worked(self, member_id: str, durable_index: int, ledger_end_index: int) -> None:
        """Check rule 8: the disk holds what the core considers durable, up to the same end."""
        disk = self._disks[member_id]
        cached_count = len(disk.cached)
        if ledger_end_index != cached_count - 1:
            raise ViolationError(
                "the core and the disk agree on the end of the log",
                f"{member_id} has its end at {ledger_end_index}, its disk at {cached_count - 1}",
            )
        if durable_index < 0:
            return
        if (
            durable_index >= cached_count
            or durable_index >= len(disk.durable)
            or disk.durable[durable_index].chain != disk.cached[durable_index].chain
        ):
            raise ViolationError(
                "an entry is durable only after its flush",
                f"{member_id} considers entry {durable_index} durable",
            )

    def sending(self, message: Message) -> None:
        """Check rules 1, 2, 10 and 13: the promise of a message is on its sender's disk."""
        disk = self._disks[message.sender]
        self.replays.sending(message)
        if message.term > disk.hard_state.term:
            raise ViolationError(
                "a term is saved before it is sent",
                f"{message.sender} has not saved the term of {described(message)}",
            )
        match message:
            case PushResponse():
                if message.result is PushResult.SUCCESS:
                    self._confirmed(message, disk)
            case AppendRequest():
                self.pushes.pushed(message)
            case CompareRequest():
                self.pushes.question_count += 1
            case HeartBeatRequest():
                self._led(message.sender, message.term)
            case VoteRequest():
                self.promises.sends_vote(message.sender, message.term, message.sender)
            case VoteResponse(result=VoteResult.ACCEPT):
                self.promises.sends_vote(message.sender, message.requested_term, message.receiver)
            case _:
                pass

    def leads(self, member_id: str, term: int) -> None:
        """Check rules 1 and 5: one leader per term, with all committed entries."""
        self._reigning[member_id] = term
        self._led(member_id, term)

    def told(self, member_id: str, committed_index: int) -> None:
        """Check rules 3, 6, 7 and 9 when a member reports its committed index.

        The index does not decrease; the member holds the entries; they are the same on all members,
        and durable on a majority.
        """
        log = self._disks[member_id].cached
        if committed_index < self._committed_indexes[member_id]:
            raise ViolationError(
                "the committed index never decreases",
                f"{member_id} decreased its committed index to {committed_index}",
            )
        if committed_index >= len(log):
            raise ViolationError(
                "a member commits only entries that it holds",
                f"{member_id} committed {committed_index} and ends at {len(log) - 1}",
            )
        self._committed_indexes[member_id] = committed_index
        if committed_index < 0:
            return
        known_count = len(self.committed)
        if committed_index >= known_count:
            self.committed += log[known_count : committed_index + 1]
            term = self._disks[member_id].hard_state.term
            self._committed_in += [term] * (committed_index + 1 - known_count)
            self._durable_on_majority(member_id, committed_index)
            if self._conditions.async_flush:
                self._note_memberships(known_count)
        if log[committed_index].chain != self.committed[committed_index].chain:
            raise ViolationError(
                "committed entries are the same on all members",
                f"{member_id} committed a different entry {committed_index}",
            )

    def acknowledged(self, first_index: int, bodies: tuple[int, ...]) -> None:
        """Check rule 11: the acknowledged entries are at the index that the client received."""
        held = self.committed[first_index : first_index + len(bodies)]
        if tuple([entry.body for entry in held]) != bodies:
            raise ViolationError(
                "an acknowledged entry is at its reported index",
                f"acknowledged entries are not at {first_index}",
            )
        self.acknowledged_count += len(bodies)

    def _led(self, member_id: str, term: int) -> None:
        """Note a leader at its first heartbeat, and check rules 1, 5 and 23."""
        new = term not in self._leaders
        leader_id = self._leaders.setdefault(term, member_id)
        if leader_id != member_id:
            raise ViolationError(
                "one leader per term", f"{leader_id} and {member_id} both lead term {term}"
            )
        if not new:
            return
        self.memberships.elected(member_id, term, self.promises.votes)
        self.replays.elected(member_id)
        log, last_index = self._disks[member_id].cached, len(self.committed) - 1
        if term < max(self._leaders):
            return  # elected by late votes; a later leader may have committed entries it lacks
        if self.committed and not holds(log, last_index, self.committed[-1].chain):
            raise ViolationError(
                "a leader holds every committed entry",
                f"{member_id} leads term {term} without entry {last_index}",
            )

    def _confirmed(self, message: PushResponse, disk: SimDisk) -> None:
        """Check rule 10 for a confirmed entry, and that it matches the leader's log.

        The leader's log is comparable only while the leader reigns, because it only grows then.
        """
        self.promises.trusts_disk(message.sender)
        index, term = message.match_index, message.requested_term
        if index >= len(disk.durable):
            raise ViolationError(
                "a confirmed entry is durable",
                f"not durable on {message.sender}: {described(message)}",
            )
        leader = self._disks[message.receiver]
        if index < 0 or not self.reigns(message.receiver, term):
            return
        if index >= len(leader.cached) or leader.cached[index].chain != disk.durable[index].chain:
            raise ViolationError(
                "a confirmed entry matches the leader's log",
                f"{message.sender} confirms a different entry {index}: {described(message)}",
            )

    def _note_memberships(self, first_index: int) -> None:
        """Note who has left the group by the entries committed from this index on."""
        for entry in self.committed[first_index:]:
            if entry.body <= HIGHEST:
                self.promises.committed_membership(membership_of(entry.body))

    def _durable_on_majority(self, member_id: str, index: int) -> None:
        chain = self.committed[index].chain
        holders = set()
        for name, disk in self._disks.items():
            forgotten = disk.forgotten or []
            # A lost volume counts too: its member votes only when it holds the entry again.
            if any(holds(log, index, chain) for log in (disk.durable, *disk.lost, forgotten)):
                holders.add(name)
        if not self.memberships.hold_majority(holders, self._disks[member_id].cached, index):
            raise ViolationError(
                "a committed entry is durable on a majority",
                f"{member_id} committed {index}, durable on {sorted(holders)}",
            )
