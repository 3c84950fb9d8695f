"""Which segments at the front of a log may go: a decision without IO.

The settings are DLedger's (`CleanSpaceService`), and so are its rules: whole segments, oldest
first, never the last one, a few in each round; by age at a certain hour or once the volume fills;
by force, at any age, when it is nearly full. Added are a limit of the log's bytes, and what DLedger
does not ask: whether the entries are committed, whether a snapshot covers them where a state is
kept, and whether every voter has them. The first two are never given up; the third by force alone,
which is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SEGMENTS_OF_A_ROUND: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A data file behind which there is another."""

    last_index: int
    size_bytes: int
    modified_s: float
    """When it was last written to, as a wall clock has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When segments are due."""

    reserved_s: float | None
    """fileReservedHours; None to keep entries of any age."""
    delete_hours: tuple[int, ...]
    """deleteWhen: hours of the local day in which what is too old goes."""
    check_expired_percent: int
    """diskSpaceRatioToCheckExpired: a volume used more has what is too old go at any hour."""
    force_clean_percent: int
    """diskSpaceRatioToForceClean: a volume used more has the oldest go at any age; 100 never."""
    bytes_max: int | None
    """How many bytes of entries are kept at most; None for any number."""

    @property
    def keeps_everything(self) -> bool:
        """Whether nothing is ever due."""
        return self.reserved_s is None and self.bytes_max is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a decision depends on."""

    now_s: float
    local_hour: int
    used_percent: int
    """Of the volume, rounded up."""
    total_bytes: int
    """Of all data files, the last included."""
    committed_index: int
    covered_index: int
    """The state that this member keeps needs no entry up to here; without one it needs none."""
    held_by_all_index: int
    """Every voter is known to hold the log up to here, durably; -1 when nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to remove; nothing when `segments` is 0."""

    segments: int
    """How many from the front."""
    forced: bool = False
    """Whether one of them holds entries that a voter may not have."""
    reason: str = ""


def decide(policy: Policy, situation: Situation, sealed: Sequence[SealedSegment]) -> Decision:
    """Say how many of the sealed segments go now, the oldest first."""
    if policy.keeps_everything:
        return Decision(segments=0)
    forcing = situation.used_percent > policy.force_clean_percent
    total_bytes, count, forced, reason = situation.total_bytes, 0, False, ""
    for segment in sealed[:SEGMENTS_OF_A_ROUND]:
        # The entry behind a segment that goes is committed too: the core's logs begin with such.
        if segment.last_index > min(situation.committed_index - 1, situation.covered_index):
            break
        why = _why_due(policy, situation, segment, total_bytes, forcing=forcing)
        needed = segment.last_index > situation.held_by_all_index
        if not why or (needed and not forcing):
            break
        reason = reason or why
        forced = forced or needed
        total_bytes -= segment.size_bytes
        count += 1
        if forcing:
            break  # one at a time: the next look tells whether that was enough
    return Decision(segments=count, forced=forced, reason=reason)


def _why_due(
    policy: Policy,
    situation: Situation,
    segment: SealedSegment,
    total_bytes: int,
    *,
    forcing: bool,
) -> str:
    """Why a segment should go now; empty when it should not."""
    if forcing:
        return f"the volume is used to {situation.used_percent} %"
    if policy.bytes_max is not None and total_bytes > policy.bytes_max:
        return f"the log has {total_bytes} bytes, and {policy.bytes_max} are to be kept"
    age_s = situation.now_s - segment.modified_s
    if policy.reserved_s is None or age_s < policy.reserved_s:
        return ""
    if situation.local_hour in policy.delete_hours:
        return f"it is {age_s / 3600:.0f} hours old"
    if situation.used_percent > policy.check_expired_percent:
        return (
            f"it is {age_s / 3600:.0f} hours old, and the volume is used to "
            f"{situation.used_percent} %"
        )
    return ""
