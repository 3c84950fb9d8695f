"""The whole state of a member, in one mutable value. The rules that change it are in other modules.

Indexes start at 0 and an empty log ends at -1, as in DLedger.
"""

import enum
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from dledger_node.raft.commit_moves import CommitMoves
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.election_causes import Election, ElectionCause, QuorumLoss
from dledger_node.raft.invariants import InvariantError
from dledger_node.raft.log_memberships import LogMemberships
from dledger_node.raft.log_terms import LogEnd, LogTerms, Seed
from dledger_node.raft.membership import MembershipEntry
from dledger_node.raft.messages import Message
from dledger_node.raft.progress import Progress
from dledger_node.raft.ready import HardState, ReadState, Truncate, Write, WriteSnapshot
from dledger_node.raft.recall_messages import Mark
from dledger_node.raft.refusals import CONTRADICTIONS, RefusalCause
from dledger_node.raft.start_states import Joining, Recalling


class Role(enum.Enum):
    """A member's role in its term (DLedger's `MemberState.Role`).

    As in DLedger, a pre-candidate counts as a candidate.
    """

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"


@dataclass(slots=True, kw_only=True)
class Follower:
    """The state of a member that follows a leader, or waits for one."""

    leader_id: str | None
    """The leader of this term; None until a request from it arrives."""
    verified_index: int
    """The log is known to equal that leader's up to this index. It starts at the committed index,
    up to which every later leader holds the same entries (Raft paper, Leader Completeness).

    Invariant: committed_index <= verified_index <= log.end_index.
    """
    matched_index: int = -1
    """The index up to which that leader's requests have shown that its log equals this one.

    Invariant: matched_index <= verified_index.
    """
    shown_index: int = -1
    """That leader's log reaches at least this index, by its own requests (`completeness`)."""
    lacks_committed: bool = False
    """Whether that leader has asked to replace entries that are committed or verified here."""
    logs_differ: bool = False
    """Whether that leader's last push did not follow this log, by the shell's checksums."""
    acknowledged_index: int = -1
    """The highest match_index sent to that leader."""
    advertised_index: int = -1
    """The highest index that this leader has, in this term, advertised as committed (so it is
    durable on the leader) and that is verified here.
    """
    leader_contact_tick: int = 0
    """The tick of that leader's last request."""
    leader_link_broken: bool = False
    """Whether the connection to that leader broke, and no request has arrived since."""
    given_up: tuple[str, ElectionCause] | None = None
    """The leader of this term that this member no longer follows, and why; for logs, not for rules.
    """

    def leader_is_alive(self, member: "MemberState") -> bool:
        """Return whether a request of this term's leader arrived within election_ticks."""
        heard_lately = member.now_ticks - self.leader_contact_tick < member.config.election_ticks
        return self.leader_id is not None and heard_lately


@dataclass(slots=True, kw_only=True)
class PreCandidate:
    """The state of a member that asks for pre-votes."""

    votes: set[str]
    """Members that granted a pre-vote, including this one. Only counted, never iterated over."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    """The state of a member that stands for election."""

    votes: set[str]
    """Members that voted for this one, including itself. Only counted, never iterated over."""
    take_leadership: bool
    """Whether the leader asked this member to stand."""


@dataclass(slots=True, kw_only=True)
class Transfer:
    """A leadership transfer in progress; the leader refuses appends until it ends."""

    transferee_id: str
    deadline: int
    """The tick at which the leader takes appends again, if it still leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRead:
    """A read that waits for proof that this member still leads."""

    first_round: int
    """The first heartbeat round whose answers prove it."""
    index: int
    handle: object


@dataclass(slots=True, kw_only=True)
class Leader:
    """The state of a member that leads."""

    noop_index: int
    """Index of this term's first entry; the leader is master once it is committed."""
    progress: dict[str, Progress]
    """The progress of each peer that the leader pushes to, by id, in the order of the ids."""
    is_voter: bool = True
    """Whether this member counts in quorums; a leader that removes itself leads until the removal
    is committed, without its own vote.
    """
    heartbeat_due: int
    """The `elapsed_ticks` of the next heartbeat round."""
    heartbeat_round: int = 0
    rounds_sent: deque[tuple[int, int]] = field(default_factory=deque)
    """Number and tick of the last round that a quorum answered, and of all later rounds."""
    reads: deque[PendingRead] = field(default_factory=deque)
    lease_ended: bool = False
    """Whether a transfer has begun in this term, which ends the read lease."""
    push_due: bool = True
    """Whether a push or a probe may be due, so that `entry_pusher.send_due` must check."""
    notices_due: bool = True  # whether `heartbeats.send_notices` must check
    commit_moves: CommitMoves = field(default_factory=CommitMoves)
    transfer: Transfer | None = None
    preferred_peer_id: str | None = None
    """The peer that is fit to lead and more preferred than this leader."""
    preferred_since: int = 0
    """The tick since which that peer has been continuously fit to lead."""


RoleState: TypeAlias = Follower | PreCandidate | Candidate | Leader


@dataclass(slots=True, kw_only=True)
class MemberState:
    """The state of one member.

    Invariants: term never decreases; vote_for changes only with the term, or from None;
    committed_index never decreases, and is at most log.end_index.
    """

    config: RaftConfig
    randint: Callable[[int, int], int]
    """Returns a random integer between its arguments, both included."""
    term: int
    vote_for: str | None
    log: LogTerms
    memberships: LogMemberships
    """The memberships of `log`; the current one defines the quorums."""
    committed_index: int
    durable_index: int
    """The log is flushed, or with AsyncFlush written, up to this index: at most log.end_index."""
    flushed_index: int  # at most durable_index
    role_state: RoleState
    joining: Joining | None = None
    """What this member has learned while joining; None if it is not joining. Invariant: while this
    is set, the role state is Follower.
    """
    seed: Seed | None = None
    """See `HardState.seed`. It never changes."""
    joined_index: int = -1
    """The entry up to which this voter had to take a leader's log before it voted again, since it
    had lost its promises; -1 if there was none since its start, or if the group was new.
    """
    recalling: Recalling | None = None
    """What this member has asked its peers at its start; None once all have answered. Invariant:
    while `recalling.waits`, the role state is Follower without a leader.
    """
    promised_end: LogEnd | None = None
    """The end of the log that this member confirmed and lost; None if it lacks nothing. While this
    is set, the member does not stand for election, and votes only for logs that end no earlier.
    """
    flushed: bool = False
    """See `HardState.flushed`. Always False under AsyncFlush."""
    unsure_term: int = -1
    """The last term in which this member may have given a vote that its disk lacks."""
    marks: dict[str, Mark] = field(default_factory=dict)
    """The last promise of each peer that this member has learned of since its start, by id."""
    alone: bool = False
    """Whether this member was the only one of its group, and no other member has led since."""
    has_room: bool = True
    """Whether, at the last tick, this member's volume had room for more entries."""
    is_behind: bool = False
    """Whether, at the last tick, this member still had to apply entries to its state (`yielding`).
    """
    reported_index: int = -1
    """The committed index that a leader has reported since the start (`yielding.note_reported`)."""
    now_ticks: int = 0
    """Number of ticks since the start. Ticks lost in a pause are not counted."""
    elapsed_ticks: int = 0
    """Time since the start, including pauses; never used for a timeout."""
    leader_contact_tick: int = 0
    """The tick of the last request of any leader, in any term; 0, the start, if there was none."""
    election_deadline: int = 0
    """The tick at which this member stands for election, unless it leads."""
    writes: list[Write] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    reads: list[ReadState] = field(default_factory=list)
    refusals: Counter[RefusalCause] = field(default_factory=Counter)
    elections: Counter[ElectionCause] = field(default_factory=Counter)
    """The elections that this member began, by cause."""
    last_election: Election | None = None
    last_quorum_loss: QuorumLoss | None = None
    contradiction: str = ""
    """A request in this term that no correct leader sends; empty if there was none."""

    @property
    def self_id(self) -> str:
        """This member's own id."""
        return self.config.self_id

    @property
    def is_voter(self) -> bool:
        """Whether this member is a voter by its current membership."""
        return self.config.self_id in self.memberships.current.voters

    @property
    def recalls(self) -> bool:
        """Whether this member promises nothing until it knows whether its disk is current."""
        return self.recalling is not None and self.recalling.waits

    @property
    def role(self) -> Role:
        """This member's role."""
        match self.role_state:
            case Follower():
                return Role.FOLLOWER
            case Leader():
                return Role.LEADER
            case PreCandidate() | Candidate():
                return Role.CANDIDATE

    @property
    def leader_id(self) -> str | None:
        """The leader of this term, if this member knows it."""
        match self.role_state:
            case Leader():
                return self.self_id
            case Follower(leader_id=leader_id):
                return leader_id
            case PreCandidate() | Candidate():
                return None

    @property
    def advertised_committed_index(self) -> int:
        """The committed index that a leader sends, limited to its own durable entries.

        The sent index shows followers which entries the leader's disk must not lose (`marks`).
        """
        return min(self.committed_index, self.durable_index)

    def hard_state_to_save(self, saved: HardState) -> HardState | None:
        """Return the hard state if it differs from the saved one; None if it does not."""
        if (
            self.term == saved.term
            and self.vote_for == saved.vote_for
            and (self.joining is not None) == saved.joining
            and self.alone == saved.alone
            and self.promised_end == saved.promised_end
            and self.flushed == saved.flushed
        ):
            return None
        return HardState(
            term=self.term,
            vote_for=self.vote_for,
            joining=self.joining is not None,
            seed=self.seed,
            alone=self.alone,
            promised_end=self.promised_end,
            flushed=self.flushed,
        )

    def send(self, message: Message) -> None:
        """Queue a message for the next Ready."""
        self.messages.append(message)

    def append(self, write: Write, last_index: int, term: int) -> None:
        """Queue a write that extends the log up to `last_index`."""
        self.log.append(last_index, term)
        self.writes.append(write)

    def adopt_membership(self, entry: MembershipEntry) -> None:
        """Put the membership of a log entry into effect.

        Marks of added members are dropped: they may have other disks. A removal may be truncated.
        """
        added = {*entry.membership.members} - {*self.memberships.current.members}
        self.marks = {one: mark for one, mark in self.marks.items() if one not in added}
        self.memberships.append(entry)
        self.alone = False

    def truncate(self, first_index: int) -> None:
        """Queue the removal of entry `first_index` and all entries after it."""
        if first_index <= self.committed_index:
            raise InvariantError(
                f"truncating at {first_index} would remove committed entries "
                f"up to {self.committed_index}"
            )
        self.log.truncate(first_index)
        self.memberships.truncate(first_index)
        self.durable_index = min(self.durable_index, first_index - 1)
        self.flushed_index = min(self.flushed_index, first_index - 1)
        self.writes.append(Truncate(first_index=first_index))

    def replace_log(self, write: WriteSnapshot) -> None:
        """Queue the removal of the whole log, and the entries that replace it."""
        if write.first_index <= self.committed_index:
            raise InvariantError(
                f"a log from {write.first_index} on would replace committed entries up to "
                f"{self.committed_index}"
            )
        self.log.reset(write.first_index)
        self.memberships.reset(write.membership)
        self.marks.clear()
        self.durable_index = self.flushed_index = -1  # a crash may lose both the old and the new
        self.append(write, write.last_index, write.term)
        for entry in write.memberships:
            self.adopt_membership(entry)

    def commit(self, index: int) -> None:
        """Raise the committed index to `index`; a lower one has no effect."""
        if index > self.log.end_index:
            raise InvariantError(
                f"entry {index} cannot be committed: the log ends at {self.log.end_index}"
            )
        self.committed_index = max(self.committed_index, index)

    def refuse(self, cause: RefusalCause, contradiction: str = "") -> None:
        """Count a refused message; if no correct leader sends it, record it as a contradiction."""
        self.refusals[cause] += 1
        if cause in CONTRADICTIONS:
            self.contradiction = contradiction
