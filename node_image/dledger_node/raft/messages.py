"""What members say to each other. Values only; how they travel is `remoting`'s business.

Every message names its sender, its receiver and the sender's term. Requests go from a candidate or
a leader; answers go back. Names are DLedger's (`protocol/` there) where it has one.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.recall_messages import RecallRequest, RecallResponse


class VoteResult(enum.Enum):
    """DLedger's `VoteResponse.RESULT`, as far as this core uses it."""

    ACCEPT = "ACCEPT"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"


class PushResult(enum.Enum):
    """What became of a push."""

    SUCCESS = "SUCCESS"
    EXPIRED_TERM = "EXPIRED_TERM"
    """The receiver's term, in the answer's `term`, is higher."""
    INCONSISTENT_STATE = "INCONSISTENT_STATE"
    """The receiver has no entry, or another one, where the push begins; the hints say where to
    go on.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest:
    """Would the receiver vote for the sender in the term after `term`, which is the sender's own?

    Asking changes nobody's term and binds nobody (Raft dissertation, 9.6).
    """

    sender: str
    receiver: str
    term: int
    ledger_end_index: int
    ledger_end_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteResponse:
    """What the receiver would say. `term` is its own term, which may be any."""

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
    """The leader before asked it to stand: nobody shall keep to that leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """Sent once the vote is durable. `term` is the voter's own term."""

    sender: str
    receiver: str
    term: int
    requested_term: int
    """The term of the request, so that a late answer cannot count in another round."""
    result: VoteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member without a memory asks what it must know before it may vote: see `joining`.

    Asking changes nobody's term.
    """

    sender: str
    receiver: str
    term: int
    incarnation: int
    """Drawn by the sender at its start; the answer returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """What the sender knows. `term` is its own term, which may be any."""

    sender: str
    receiver: str
    term: int
    incarnation: int
    """Of the request."""
    ledger_end_index: int
    leading: bool
    """The sender leads `term`."""
    joining: bool
    """The sender is no voter yet either."""
    alone: bool
    """The sender was its group's only member, and nobody else has led since."""
    memberships: tuple[Membership, ...] = ()
    """The current one as the sender knows it; before it the one that it replaces, while it is not
    committed. Empty while the group has those voters with which it began.
    """

    @property
    def blank(self) -> bool:
        """The sender has never voted, and never held an entry."""
        return self.term == 0 and self.ledger_end_index < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatRequest:
    """The leader of `term` lives, and has committed up to `committed_index`."""

    sender: str
    receiver: str
    term: int
    committed_index: int
    """At most what the leader knows the receiver to hold (Raft dissertation, 3.5 and 10.2.1)."""
    round: int
    """Counts the leader's rounds; the answer returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatResponse:
    """The receiver follows the leader of the request's term, or says which higher term it is in."""

    sender: str
    receiver: str
    term: int
    round: int
    joining: bool = False
    """The sender has no memory yet of what it may have promised: see `joining`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """DLedger's push of type COMPARE: does the receiver hold the entry (index, index_term)?"""

    sender: str
    receiver: str
    term: int
    index: int
    """-1 asks for the empty prefix, which every member holds."""
    index_term: int
    committed_index: int
    probe: int
    """Counts the probes sent to this peer in this term; the answer returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """DLedger's push of type APPEND: entries `first_index`..`last_index`, all of `entries_term`.

    `entries` is the shell's handle on their bytes; the core passes it on and never looks inside. On
    the leader it is None: the shell reads the range from its store when it sends.
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
    """Those of the entries that change the membership; nearly always there is none."""

    def __post_init__(self) -> None:
        if not self.previous_index + 1 == self.first_index <= self.last_index:
            raise ValueError(f"the range {self.first_index}..{self.last_index} cannot be")
        if self.entries_term < 0 or not self.previous_term <= self.entries_term <= self.term:
            raise ValueError(f"the terms {self.previous_term}, {self.entries_term} cannot be")
        if self.memberships:
            _check_within(self.memberships, self.first_index, self.last_index)

    def until(self, last_index: int) -> Self:
        """The first part of this push, or all of it."""
        if last_index == self.last_index:
            return self
        return replace(
            self, last_index=last_index, memberships=_until(self.memberships, last_index)
        )

    def after(self, index: int) -> Self:
        """What `until` leaves of it."""
        return replace(
            self,
            previous_index=index,
            previous_term=self.entries_term,
            first_index=index + 1,
            memberships=self.memberships_after(index),
        )

    def memberships_after(self, index: int) -> tuple[MembershipEntry, ...]:
        """Those that lie behind an index."""
        return tuple(entry for entry in self.memberships if entry.index > index)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshotRequest:
    """The leader's first entries, for a receiver whose log cannot be led up to them any more: all
    before `first_index` is committed and was removed.

    DLedger's push of type INSTALL_SNAPSHOT, without a state: the log is all there is. `entries` as
    in AppendRequest.
    """

    sender: str
    receiver: str
    term: int
    first_index: int
    last_index: int
    entries_term: int
    committed_index: int
    """At least `first_index`, so that the receiver's new log begins for good."""
    entries: object = None
    membership: Membership | None = None
    """What holds before the first entry; None for the voters with which the group began."""
    memberships: tuple[MembershipEntry, ...] = ()
    """As in AppendRequest."""

    def __post_init__(self) -> None:
        if not 0 < self.first_index <= min(self.last_index, self.committed_index):
            raise ValueError(f"a log cannot begin with {self.first_index}..{self.last_index}")
        if not 0 <= self.entries_term <= self.term:
            raise ValueError(f"the term {self.entries_term} cannot be")
        if self.memberships:
            _check_within(self.memberships, self.first_index, self.last_index)

    def until(self, last_index: int) -> Self:
        """The first part of this push."""
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
    """Answer to COMPARE and APPEND; for an APPEND it is sent once the entries are durable."""

    sender: str
    receiver: str
    term: int
    """The receiver's own term."""
    requested_term: int
    result: PushResult
    match_index: int
    """On SUCCESS: the receiver holds, durably, the leader's entries up to here. Otherwise -1."""
    ledger_end_index: int
    conflict_term: int = -1
    """On INCONSISTENT_STATE: the term of the receiver's entry there (DLedger's xTerm), or -1."""
    conflict_index: int = -1
    """And its first index of that term at or before it (DLedger's xIndex)."""
    probe: int | None = None
    """The COMPARE's number; None in the answer to an APPEND."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByAllNotice:
    """Every voter holds the sender's log up to `index`, durably; for the shell's retention alone.

    That stays true in every later term, so it is no matter whose notice comes late.
    """

    sender: str
    receiver: str
    term: int
    index: int


def _check_within(
    memberships: Sequence[MembershipEntry], first_index: int, last_index: int
) -> None:
    """ValueError unless the entries lie in the range, one after another."""
    indexes = [entry.index for entry in memberships]
    if indexes != sorted(set(indexes)) or indexes[0] < first_index or indexes[-1] > last_index:
        raise ValueError(f"membership entries {indexes} are not of {first_index}..{last_index}")


def _until(memberships: Sequence[MembershipEntry], last_index: int) -> tuple[MembershipEntry, ...]:
    return tuple(entry for entry in memberships if entry.index <= last_index)


LeaderRequest: TypeAlias = (
    HeartBeatRequest
    | CompareRequest
    | AppendRequest
    | InstallSnapshotRequest
    | TakeLeadershipRequest
)
"""What only the leader of a term may ask in it."""
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
