"""The messages with which a recalling member asks its peers for their marks (`recalling`)."""

from dataclasses import dataclass
from typing import NamedTuple

from dledger_node.raft.log_terms import EMPTY, LogEnd
from dledger_node.raft.membership import Membership


class Mark(NamedTuple):
    """The last promise of a member that a peer remembers."""

    term: int
    """The term in which the member voted or confirmed entries."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    """The last entry that it confirmed to the leader of that term; -1 for none."""
    index_term: int
    """That entry's term; -1 if it is no longer known."""
    end: LogEnd = EMPTY
    """The most up-to-date log that it has confirmed or led, in any term; for `confirms_unflushed`,
    where its disk may have lost the end of that log.
    """
    is_whole: bool = False
    """Whether no other peer can remember a later end, because the peer that remembers this one led
    `term`, and the entry at `index` is of that term.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """A recalling member asks for the receiver's mark of it. The request changes no term."""

    sender: str
    receiver: str
    term: int
    incarnation: int
    """Drawn by the sender at its start; the answer returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResponse:
    """The sender's mark of the receiver. `term` is the sender's own term."""

    sender: str
    receiver: str
    term: int
    incarnation: int
    """The incarnation of the request."""
    memberships: tuple[Membership, ...] = ()
    """The memberships that may be in effect, as in JoinResponse."""
    mark: Mark | None = None
    """The mark; None if the sender remembers no promise of the receiver."""
