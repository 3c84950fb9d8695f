"""The messages between members, as values; `remoting` encodes them.

Every message names its sender, its receiver and the sender's term. Messages that DLedger has in its
`protocol/` keep its names.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.recall_messages import RecallRequest, RecallResponse


class VoteResult(enum.Enum):
    """The results of DLedger's `VoteResponse.RESULT` that this core uses."""

    ACCEPT = "ACCEPT"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"


class PushResult(enum.Enum):
    """The result of a push."""

    SUCCESS = "SUCCESS"
    EXPIRED_TERM = "EXPIRED_TERM"
    """The receiver's term is higher; `term` in the response contains it."""
    INCONSISTENT_STATE = "INCONSISTENT_STATE"
    """The receiver lacks the entry before the push, or has a different one. The conflict fields say
    where to continue.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest:
    """Ask whether the receiver would vote for the sender in the term after `term`, the sender's.

    A pre-vote changes no term and is not a promise (Raft dissertation, 9.6).
    """

    sender: str
    receiver: str
    term: int
    ledger_end_index: int
    ledger_end_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteResponse:
    """The answer to a pre-vote, or from a transferee that declines the leadership (`yielding`).
    `term` is the sender's own term; the receiver accepts any."""

    sender: str
    receiver: str
    term: int
    requested_term: int
    """The term of the request."""
    result: VoteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote in `term`."""

    sender: str
    receiver: str
    term: int
    ledger_end_index: int
    ledger_end_term: int
    take_leadership: bool = False
    """Whether the leader asked the sender to stand, so that voters need not protect the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """The answer to a vote request, sent once the vote is durable. `term` is the voter's own."""

    sender: str
    receiver: str
    term: int
    requested_term: int
    """The term of the request, so that a late answer does not count in a later election."""
    result: VoteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A joining member asks for the state that it must know before it may vote (`joining`).

    The request changes no term.
    """

    sender: str
    receiver: str
    term: int
    incarnation: int
    """Drawn by the sender at its start; the answer returns it."""
    seed_sha256: str = ""
    """`Seed.sha256` of a sender that has nothing but an archive's log; empty from all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The answer to a joining member. `term` is the sender's own term; the receiver accepts any."""

    sender: str
    receiver: str
    term: int
    incarnation: int
    """The incarnation of the request."""
    ledger_end_index: int
    leading: bool
    """Whether the sender leads `term`."""
    joining: bool
    """Whether the sender is joining too."""
    alone: bool
    """Whether the sender was its group's only member, and no other member has led since."""
    seed_sha256: str = ""
    """`Seed.sha256` of the sender; empty if the sender or the request has none."""
    memberships: tuple[Membership, ...] = ()
    """The current membership in the sender's log, preceded by the one that it replaces until it is
    committed. Empty while the group has its first voters.
    """

    @property
    def blank(self) -> bool:
        """Whether the sender has never voted and never had an entry."""
        return self.term == 0 and self.ledger_end_index < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatRequest:
    """Heartbeat of the leader of `term`, which has committed up to `committed_index`."""

    sender: str
    receiver: str
    term: int
    committed_index: int
    """The leader's committed index, or the receiver's match index if that is lower (Raft
    dissertation, 3.5 and 10.2.1).
    """
    round: int
    """The number of the leader's round; the answer returns it, or 0 if its term is later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatResponse:
    """The sender follows the leader of the request's term, or has a higher term."""

    sender: str
    receiver: str
    term: int
    round: int
    joining: bool = False
    """Whether the sender is joining (`joining`)."""
    full: bool = False
    """Whether the sender's volume is full, so that it takes no further entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """DLedger's push of type COMPARE: ask whether the receiver has an entry (index, term)."""

    sender: str
    receiver: str
    term: int
    index: int
    """Index of the entry in question; -1 stands for the empty log, which every member has."""
    index_term: int
    committed_index: int
    probe: int
    """The number of this probe of the peer in this term; the answer returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """DLedger's push of type APPEND: entries `first_index`..`last_index`, all of `entries_term`.

    `entries` is the shell's handle on their bytes, which the core only passes on. On the leader it
    is None: the shell reads the range from its store when it sends.
    """

    sender: str
    receiver: str
    term: int
    previous_index: int
    previous_term: int
    first_index: int
    last_index: int
    entries_term: int
    committed_index: int
    entries: object = None
    memberships: tuple[MembershipEntry, ...] = ()
    """The membership entries in the range; usually none."""

    def __post_init__(self) -> None:
        if not self.previous_index + 1 == self.first_index <= self.last_index:
            raise ValueError(f"the range {self.first_index}..{self.last_index} is not valid")
        if self.entries_term < 0 or not self.previous_term <= self.entries_term <= self.term:
            raise ValueError(f"the terms {self.previous_term}, {self.entries_term} are not valid")
        if self.memberships:
            _check_within(self.memberships, self.first_index, self.last_index)

    def until(self, last_index: int) -> Self:
        """Return the part of this push up to `last_index`, or all of it."""
        if last_index == self.last_index:
            return self
        return replace(
            self, last_index=last_index, memberships=_until(self.memberships, last_index)
        )

    def after(self, index: int) -> Self:
        """Return the part of this push after `index`."""
        return replace(
            self,
            previous_index=index,
            previous_term=self.entries_term,
            first_index=index + 1,
            memberships=self.memberships_after(index),
        )

    def memberships_after(self, index: int) -> tuple[MembershipEntry, ...]:
        """Return the membership entries after an index."""
        return tuple(entry for entry in self.memberships if entry.index > index)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshotRequest:
    """The leader's first entries, for a receiver that lacks entries which the leader has removed:
    all entries before `first_index` are committed.

    DLedger's push of type INSTALL_SNAPSHOT without the state, which the shells exchange first.
    `entries` is as in AppendRequest.
    """

    sender: str
    receiver: str
    term: int
    first_index: int
    last_index: int
    entries_term: int
    committed_index: int
    """The leader's committed index: at least `first_index`, so that the receiver never truncates
    its new log before it.
    """
    entries: object = None
    membership: Membership | None = None
    """The membership before the first entry; None for the group's first voters."""
    memberships: tuple[MembershipEntry, ...] = ()
    """The membership entries among the entries."""

    def __post_init__(self) -> None:
        if not 0 < self.first_index <= min(self.last_index, self.committed_index):
            raise ValueError(f"a log cannot begin with {self.first_index}..{self.last_index}")
        if not 0 <= self.entries_term <= self.term:
            raise ValueError(f"the term {self.entries_term} is not valid")
        if self.memberships:
            _check_within(self.memberships, self.first_index, self.last_index)

    def until(self, last_index: int) -> Self:
        """Return the part of this push up to `last_index`."""
        return replace(
            self, last_index=last_index, memberships=_until(self.memberships, last_index)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeLeadershipRequest:
    """The leader of `term` asks the receiver to stand for election at once.

    The Raft dissertation's TimeoutNow (3.10); DLedger's LEADERSHIP_TRANSFER to the transferee.
    """

    sender: str
    receiver: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushResponse:
    """The answer to COMPARE and APPEND; for an APPEND, it is sent once the entries are durable."""

    sender: str
    receiver: str
    term: int
    """The receiver's own term."""
    requested_term: int
    result: PushResult
    match_index: int
    """On SUCCESS: the receiver has the leader's entries up to here, durably. Otherwise -1."""
    ledger_end_index: int
    conflict_term: int = -1
    """On INCONSISTENT_STATE: the term of the receiver's entry at that index (DLedger's xTerm); -1
    if it has none.
    """
    conflict_index: int = -1
    """The receiver's first index of that term at or before that entry (DLedger's xIndex)."""
    probe: int | None = None
    """The COMPARE's number; None in the answer to an APPEND."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByAllNotice:
    """Every voter has the sender's log up to `index`, durably. Only the shell's retention uses it.

    This stays true in every later term, so a late notice does no harm.
    """

    sender: str
    receiver: str
    term: int
    index: int


def _check_within(
    memberships: Sequence[MembershipEntry], first_index: int, last_index: int
) -> None:
    """Raise ValueError unless the entries are in the range and in order."""
    indexes = [entry.index for entry in memberships]
    if indexes != sorted(set(indexes)) or indexes[0] < first_index or indexes[-1] > last_index:
        raise ValueError(f"membership entries {indexes} are not in {first_index}..{last_index}")


def _until(memberships: Sequence[MembershipEntry], last_index: int) -> tuple[MembershipEntry, ...]:
    return tuple(entry for entry in memberships if entry.index <= last_index)


LeaderRequest: TypeAlias = (
    HeartBeatRequest
    | CompareRequest
    | AppendRequest
    | InstallSnapshotRequest
    | TakeLeadershipRequest
)
"""The requests that only the leader of a term may send."""
Request: TypeAlias = PreVoteRequest | VoteRequest | JoinRequest | RecallRequest | LeaderRequest
Response: TypeAlias = (
    PreVoteResponse
    | VoteResponse
    | JoinResponse
    | RecallResponse
    | HeartBeatResponse
    | PushResponse
)
Message: TypeAlias = Request | Response | HeldByAllNotice
