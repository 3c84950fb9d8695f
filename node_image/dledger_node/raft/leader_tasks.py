"""What a leader has begun and not finished: a transfer of the leadership, and reads."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Transfer:
    """A leadership transfer in progress; the leader refuses appends until it ends."""

    transferee_id: str
    deadline: int
    """The tick at which the leader takes appends again, if it still leads."""
    is_asked: bool = False
    """Whether the transferee has been asked to stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRead:
    """A read that waits for proof that this member still leads."""

    first_round: int
    """The first heartbeat round whose answers prove it."""
    index: int
    handle: object
