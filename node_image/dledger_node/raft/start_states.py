"""What a member has learned of its peers since its start: while it joins, and while it recalls."""

from dataclasses import dataclass, field

from dledger_node.raft.log_terms import EMPTY, LogEnd, Seed
from dledger_node.raft.messages import JoinResponse


@dataclass(slots=True, kw_only=True)
class Joining:
    """What a joining member has learned since its start; the rules are in `joining`."""

    incarnation: int
    """The number drawn at this start, sent in every JoinRequest."""
    reason: str = ""
    """Human-readable reason why this member does not trust its disk; empty for an empty disk."""
    seed: Seed | None = None
    """The archive whose log is all that this member has; None if there is no such archive."""
    answers: dict[str, JoinResponse] = field(default_factory=dict)
    """The last answer of each peer, by its id."""
    ask_due: int = 0
    """The tick at which this member asks all peers again."""


@dataclass(slots=True, kw_only=True)
class Recalling:
    """The state of a recalling member; the rules are in `recalling`."""

    incarnation: int
    """The number drawn at this start, sent in every RecallRequest."""
    disk_flushed: bool
    """`HardState.flushed` at this start, regardless of the flush mode since then."""
    asked: set[str]
    """The peers that may have a mark of this member. Sorted before it is iterated over."""
    answered: set[str] = field(default_factory=set)
    waits: bool = True
    """Whether this member has promised and saved nothing yet, so that its term is the disk's."""
    reported_term: int = -1
    """The highest term in the answers."""
    reported_end: LogEnd = EMPTY
    """The most up-to-date end in the marks of the answers."""
    knows_all: bool = False
    """Whether no silent peer can remember a later end (`Mark.is_whole`)."""
    ask_due: int = 0
    """The tick at which this member asks the silent peers again."""
