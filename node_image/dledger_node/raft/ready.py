"""The work that the core gives its shell, and the order in which the shell must do it."""

from dataclasses import dataclass
from typing import TypeAlias

from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.raft.membership import Membership, MembershipEntry
from dledger_node.raft.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """The state that a member must never lose: its term, and its vote in that term."""

    term: int
    vote_for: str | None
    joining: bool = False
    """Whether the member lacks its earlier promises and does not vote yet; see `joining`."""
    seed: Seed | None = None
    """The archive that the member's folder began with; None if it began empty. See `joining`."""
    alone: bool = False
    """Whether the member was the only one of its group, and no other has led since."""
    promised_end: LogEnd | None = None
    """The end of the log that the member confirmed and its host lost with its power (AsyncFlush);
    None if its log is at least as up to date. See `recalling`.
    """
    flushed: bool = False
    """Whether all that the member ever confirmed was flushed first. If False, or unknown because
    Java or an earlier version wrote the file, its host may have lost the end of the log.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Remove entry `first_index` and all after it; never at or below the committed index."""

    first_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteProposal:
    """Write bodies that the shell proposed, as entries of this leader's term."""

    first_index: int
    last_index: int
    term: int
    entries: object


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNoop:
    """Write the no-op with which a leader starts its term (Raft paper, section 8)."""

    index: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMembership:
    """Write a membership entry, as the leader of this term."""

    index: int
    term: int
    membership: Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePushed:
    """Write entries that the leader pushed, from `first_index` on.

    `entries` is the handle of an AppendRequest. It may begin before `first_index`, with entries
    that the log already holds. `memberships` are the membership entries among those to write.
    """

    first_index: int
    last_index: int
    term: int
    entries: object
    memberships: tuple[MembershipEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshot:
    """Durably remove the whole log, and write entries that the leader pushed in its place.

    `entries` is the handle of an InstallSnapshotRequest. `membership` is in effect before the first
    of them; its own entry may have been removed. None means the group's first voters.
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
    """The result of a `read_index` call."""

    handle: object
    """The handle that the shell passed to `read_index`."""
    index: int | None
    """A read that includes all entries up to this index is linearizable. The committed index may
    still be below it. None if this member stopped leading before it could confirm the read.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A batch of work. The shell does it in the order of the fields, then calls `advance`.

    1. Make `hard_state` durable, if it is not None, before any other step: a vote that is sent and
       then lost can elect two leaders.
    2. Do `writes` in order, to the page cache. The shell flushes in the background, at any time,
       and reports it with `persisted`; no entry counts as durable before that.
    3. Send `messages`. They may be lost, repeated, delayed and reordered.
    4. Entries up to `committed_index` may be applied, and shown to clients.
    5. Answer each of `reads` once the committed index has reached its index. A member that stops
       leading refuses the reads that still wait, since it may never reach that index.
    """

    hard_state: HardState | None
    writes: tuple[Write, ...]
    messages: tuple[Message, ...]
    committed_index: int
    reads: tuple[ReadState, ...] = ()
