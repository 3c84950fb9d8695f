"""Decide which segments at the front of a log to remove; no IO.

The settings and rules are DLedger's (`CleanSpaceService`): whole segments, oldest first, never the
last one, a few per round; by age at a certain hour or once the volume fills; forced, at any age,
when the volume is nearly full. This module adds a limit on the log's bytes and three conditions
that DLedger lacks: the entries are committed, a snapshot covers them where the member keeps a
state, and every voter has them. A forced removal may break only the third; it is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger_formats.http.retention import RemovalRule

SEGMENTS_OF_A_ROUND: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A data segment that is not the last."""

    last_index: int
    size_bytes: int
    modified_s: float
    """Time of the last write, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The retention settings."""

    reserved_s: float | None
    """fileReservedHours: age at which a segment expires; None for never."""
    delete_hours: tuple[int, ...]
    """deleteWhen: hours of the local day in which expired segments are removed."""
    check_expired_percent: int
    """diskSpaceRatioToCheckExpired: above this volume usage, expired segments are removed at any
    hour.
    """
    force_clean_percent: int
    """diskSpaceRatioToForceClean: above this volume usage, the oldest segment is removed at any
    age; 100 for never.
    """
    bytes_max: int | None
    """Maximum size of the log; None for no limit."""

    @property
    def keeps_everything(self) -> bool:
        """Whether no segment is ever removed."""
        return self.reserved_s is None and self.bytes_max is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state of the member and of its volume."""

    now_s: float
    local_hour: int
    used_percent: int
    """Volume usage, rounded up."""
    total_bytes: int
    """Size of all data segments, including the last."""
    committed_index: int
    covered_index: int
    """Last entry that this member's state no longer needs."""
    held_by_all_index: int
    """Last entry that every voter is known to hold durably; -1 if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many segments to remove, and why."""

    segments: int
    """Number of segments at the front; 0 to remove nothing."""
    forced: bool = False
    """Whether a voter may lack entries of these segments."""
    reason: str = ""
    rule: RemovalRule | None = None
    """The rule by which all of them are due; None to remove nothing."""


def decide(policy: Policy, situation: Situation, sealed: Sequence[SealedSegment]) -> Decision:
    """Decide how many of the sealed segments to remove now, oldest first, all by one rule."""
    if policy.keeps_everything:
        return Decision(segments=0)
    forcing = situation.used_percent > policy.force_clean_percent
    total_bytes, count, forced = situation.total_bytes, 0, False
    rule, reason = None, ""
    for segment in sealed[:SEGMENTS_OF_A_ROUND]:
        # The entry after a removed segment must be committed too: the core requires that its log
        # begins with a committed entry.
        if segment.last_index > min(situation.committed_index - 1, situation.covered_index):
            break
        due = _rule_due(policy, situation, segment, total_bytes, forcing=forcing)
        needed = segment.last_index > situation.held_by_all_index
        if due is None or (needed and not forcing):
            break
        if rule is None:
            rule, reason = due, _reason(due, policy, situation, segment)
        if due is not rule:
            break  # the next round has its own rule, and its own record
        forced = forced or needed
        total_bytes -= segment.size_bytes
        count += 1
        if forcing:
            break  # one at a time: the next round sees whether that was enough
    return Decision(segments=count, forced=forced, reason=reason, rule=rule)


def _rule_due(
    policy: Policy,
    situation: Situation,
    segment: SealedSegment,
    total_bytes: int,
    *,
    forcing: bool,
) -> RemovalRule | None:
    """Return the rule by which a segment is due now; None if it is not."""
    if forcing:
        return RemovalRule.FORCE
    if policy.bytes_max is not None and total_bytes > policy.bytes_max:
        return RemovalRule.SIZE
    age_s = situation.now_s - segment.modified_s
    if policy.reserved_s is None or age_s < policy.reserved_s:
        return None
    if situation.local_hour in policy.delete_hours:
        return RemovalRule.AGE
    if situation.used_percent > policy.check_expired_percent:
        return RemovalRule.FILLING_VOLUME
    return None


def _reason(rule: RemovalRule, policy: Policy, situation: Situation, oldest: SealedSegment) -> str:
    """Say why the oldest segment is due."""
    used = f"{situation.used_percent}% of the volume is used"
    old = f"the oldest is {(situation.now_s - oldest.modified_s) / 3600:.0f} hours old"
    if rule is RemovalRule.FORCE:
        return used
    if rule is RemovalRule.SIZE:
        return f"the log has {situation.total_bytes} bytes; the limit is {policy.bytes_max}"
    return f"{old}, and {used}" if rule is RemovalRule.FILLING_VOLUME else old
