"""What the core asks of its shell, and in which order the shell must do it."""

from dataclasses import dataclass
from typing import TypeAlias

from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What a member must never forget: its term, and whom it voted for in that term."""

    term: int
    vote_for: str | None
    joining: bool = False
    """It came up without a memory and is no voter yet: see `joining`."""
    alone: bool = False
    """It was its group's only member, and nobody else has led since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Remove the entry `first_index` and everything behind it; never at or below the committed
    index.
    """

    first_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteProposal:
    """Write the bodies that the shell proposed, as entries of this leader's term."""

    first_index: int
    last_index: int
    term: int
    entries: object


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNoop:
    """Write the empty entry with which a leader begins its term (Raft paper, section 8)."""

    index: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMembership:
    """Write an entry that changes the membership, as the leader of this term."""

    index: int
    term: int
    membership: Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePushed:
    """Write entries that the leader pushed, from `first_index` on.

    `entries` is the handle of an AppendRequest. It may begin before `first_index`, with entries
    that the log holds already. `memberships` are those of the written entries that are such.
    """

    first_index: int
    last_index: int
    term: int
    entries: object
    memberships: tuple[MembershipEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot:
    """Remove the whole log, durably, and write entries that the leader pushed in its place.

    `entries` is the handle of an InstallSnapshotRequest. `membership` holds before the first of
    them, which no entry says any more; None for the voters with which the group began.
    """

    first_index: int
    last_index: int
    term: int
    entries: object
    membership: Membership | None = None
    memberships: tuple[MembershipEntry, ...] = ()


Write: TypeAlias = (
    Truncate | WriteProposal | WriteNoop | WriteMembership | WritePushed | WriteSnapshot
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """What became of a read that was asked for by `read_index`."""

    handle: object
    """As given by the shell."""
    index: int | None
    """A read that sees all up to here misses nothing that was acknowledged before it was asked for;
    the committed index may have to reach it first. None: this member stopped leading before it
    knew.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A batch of work. The shell does it in the order of the fields, then calls `advance`.

    1. `hard_state`, when it is not None, is made durable. Nothing else of this batch may happen
       before: a vote that is told and then forgotten elects two leaders.
    2. `writes` are done in order, to the page cache. The shell flushes them when it likes, in the
       background, and tells the core by `persisted`; nothing is acknowledged before.
    3. `messages` are sent. They may be lost, repeated, delayed and reordered.
    4. Entries up to `committed_index` may be applied, and shown to clients.
    5. `reads` are answered, each once the committed index has reached its own; a member that leads
       no more refuses those that wait still, for it may never be reached.
    """

    hard_state: HardState | None
    writes: tuple[Write, ...]
    messages: tuple[Message, ...]
    committed_index: int
    reads: tuple[ReadState, ...] = ()
