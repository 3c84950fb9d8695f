"""What a member removed from the front of its log and why, and what determines the next removal.

Both are part of `/manifest`. The member keeps its removals durably, in the file `removals`.
"""

import enum
from dataclasses import dataclass, field


class RemovalRule(enum.StrEnum):
    """Why entries are no longer in a member's log."""

    SIZE = "Size"
    """The log was larger than its limit."""
    AGE = "Age"
    """The segment had expired, and it was an hour of deletion."""
    FILLING_VOLUME = "FillingVolume"
    """The segment had expired, and the volume was filling up."""
    FORCE = "Force"
    """The volume was nearly full, so the oldest segment was removed regardless of its age."""
    LEADER_LOG = "LeaderLog"
    """The log of the leader replaced this one, and it began with a later entry."""
    EARLIER = "Earlier"
    """All removals before the last hundred, combined."""
    UNRECORDED = "Unrecorded"
    """The member removed the entries on purpose, and the reason is not known: an earlier release
    or Java removed them, or the record was lost.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Entries that were removed from the front of a log at once, and what was known then.

    With rules other than those of retention, nothing else is known: the indexes are -1 or None.
    """

    first_index: int
    last_index: int
    rule: RemovalRule
    removed_at_ms: int = -1
    """Time by the member's clock, since the epoch; -1 if it is not known."""
    is_forced: bool = False
    """Whether a voter may have lacked the entries."""
    committed_index: int = -1
    covered_index: int | None = None
    """Last entry that the member's state no longer needed; None without a state."""
    held_by_all_index: int = -1
    """Last entry that every voter was known to hold durably; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSnapshot:
    """A sound snapshot of a member's state."""

    last_included_index: int
    last_included_term: int
    data_bytes: int
    data_crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The retention settings in force."""

    reserved_ms: int | None
    """Age at which a segment expires; None for never."""
    delete_hours: list[int]
    """Hours of the local day in which expired segments are removed."""
    check_expired_percent: int
    """Above this volume usage, expired segments are removed at any hour."""
    force_clean_percent: int
    """Above this volume usage, the oldest segment is removed regardless of age; 100 for never."""
    bytes_max: int | None
    """Maximum size of the log; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionState:
    """What determines the next removal, at one instant, and the removals so far."""

    policy: RetentionPolicy
    now_ms: int
    """The member's clock, with which the files' modification times are compared."""
    utc_offset_s: int
    """The member's local time minus UTC."""
    used_percent: int
    """Usage of the volume, rounded up."""
    log_bytes: int
    """Size of all data segments; of the last one, only the part that is written."""
    committed_index: int
    """The committed index of the last checkpoint."""
    applied_index: int
    """Last entry that the state includes; -1 without a state."""
    covered_index: int | None
    """Last entry that the state does not need, even from its oldest snapshot; None without a state.
    """
    held_by_all_index: int
    """Last entry that every voter is known to hold durably; -1 if unknown."""
    snapshots: list[HeldSnapshot] = field(default_factory=list)
    """The sound snapshots, oldest first."""
    damaged_snapshots: list[int] = field(default_factory=list)
    """The last included indexes of snapshots that the member has found to be damaged."""
    removals: list[Removal] = field(default_factory=list)
    """What is missing before the log's first entry, in order; at most a hundred."""
