"""What retention removes next: when each sealed segment is due, by which rule, what holds it back.

The rules are those of the nodes (docs/disk-format.md, Retention), written again from their
description: a node decides about one round, this module describes every sealed segment, and a test
compares the two. Times are those of the member's clock.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dledger_formats.http.retention import RemovalRule, RetentionPolicy, RetentionState
from dledger_formats.http.status import Manifest, SegmentFile
from pyspark_dledger.plan import in_order

SEGMENTS_OF_A_ROUND: Final = 10
"""A node removes at most this many segments a second."""
_HOUR_MS: Final = 3_600_000


class HeldBy(StrEnum):
    """What keeps a segment that is due."""

    COMMIT = "commit"
    """The entry after it is not committed, by the last checkpoint."""
    STATE = "state"
    """The state needs it, for a restore from its oldest snapshot or for a program."""
    VOTERS = "voters"
    """Not every voter is known to hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRemoval:
    """One sealed segment."""

    segment: str
    """The name of the data file."""
    first_index: int
    last_index: int
    size_bytes: int
    rule: RemovalRule | None
    """The rule by which it is due, or will be first; None if no setting ever removes it."""
    due_at_ms: int | None
    """When it is due by its age, if nothing else happens; not later than now if it is due; None if
    only growth makes it due.
    """
    due_after_bytes: int | None
    """By how many bytes the log must grow until it is due by its size; 0 if it is due; None without
    a limit.
    """
    is_due: bool
    """Whether a rule would remove it now, after all segments before it."""
    held_by: list[HeldBy] = field(default_factory=list)
    lagging: dict[str, int] = field(default_factory=dict)
    """Voters that do not hold its last entry durably, with the last entry that they hold; -1 for a
    voter that was not read. Empty although `held_by` has VOTERS: the leader has not reported yet.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the next round of retention removes, if nothing changes before it."""

    segments: int
    rule: RemovalRule | None
    """The rule of all of them; None if nothing is removed."""
    is_forced: bool
    """Whether a voter may lack entries of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a member removes next."""

    member: str
    now_ms: int
    keeps_everything: bool
    """Whether no retention is set."""
    next_round: Round
    segments: list[NextRemoval]
    """All sealed segments, oldest first."""


def outlooks(manifests: Mapping[str, Manifest], voters: AbstractSet[str]) -> list[Outlook]:
    """Return the outlook of every member that reports its retention."""
    durable = {
        voter: manifests[voter].status.durable_index if voter in manifests else -1
        for voter in sorted(voters)
    }
    return [
        outlook(member, manifest.retention, manifest.data, durable)
        for member, manifest in manifests.items()
        if manifest.retention is not None
    ]


def outlook(
    member: str, state: RetentionState, data: Sequence[SegmentFile], durable: Mapping[str, int]
) -> Outlook:
    """Return what a member with these data files removes next.

    `durable` is the last entry that each voter holds durably; -1 for one that was not read.
    """
    planned = list(_planned(state, data, durable))
    return Outlook(
        member=member,
        now_ms=state.now_ms,
        keeps_everything=keeps_everything(state.policy),
        next_round=next_round(planned),
        segments=planned,
    )


def keeps_everything(policy: RetentionPolicy) -> bool:
    """Return whether no segment is ever removed, even from a full volume."""
    return policy.reserved_ms is None and policy.bytes_max is None


def next_round(planned: Sequence[NextRemoval]) -> Round:
    """Return what the next round removes: segments due by one rule, by force only one."""
    chosen: list[NextRemoval] = []
    for each in planned[:SEGMENTS_OF_A_ROUND]:
        is_other_rule = bool(chosen) and each.rule is not chosen[0].rule
        if not each.is_due or _is_held(each) or is_other_rule:
            break
        chosen.append(each)
        if each.rule is RemovalRule.FORCE:
            break
    return Round(
        segments=len(chosen),
        rule=chosen[0].rule if chosen else None,
        is_forced=any(HeldBy.VOTERS in each.held_by for each in chosen),
    )


def _is_held(planned: NextRemoval) -> bool:
    """Return whether a due segment stays; force removes it even if voters lack its entries."""
    ignored = {HeldBy.VOTERS} if planned.rule is RemovalRule.FORCE else set()
    return bool(set(planned.held_by) - ignored)


def _planned(
    state: RetentionState, data: Sequence[SegmentFile], durable: Mapping[str, int]
) -> Iterator[NextRemoval]:
    files = in_order(list(data))
    policy, log_bytes = state.policy, state.log_bytes
    is_forcing = not keeps_everything(policy) and state.used_percent > policy.force_clean_percent
    for file, following in itertools.pairwise(files):
        last_index = following.first_index - 1
        after_bytes = None
        if policy.bytes_max is not None:
            after_bytes = max(0, policy.bytes_max + 1 - log_bytes)
        at_ms, by_age = _due_by_age(state, file.modified_ms)
        rule, is_due = by_age, at_ms is not None and at_ms <= state.now_ms
        if is_forcing:
            rule, is_due = RemovalRule.FORCE, True
        elif after_bytes == 0 or (after_bytes is not None and rule is None):
            rule, is_due = RemovalRule.SIZE, after_bytes == 0
        yield NextRemoval(
            segment=file.name,
            first_index=file.first_index,
            last_index=last_index,
            size_bytes=file.size_bytes,
            rule=rule,
            due_at_ms=at_ms,
            due_after_bytes=after_bytes,
            is_due=is_due,
            held_by=list(_held_by(state, last_index)),
            lagging={voter: index for voter, index in durable.items() if index < last_index},
        )
        log_bytes -= file.size_bytes


def _held_by(state: RetentionState, last_index: int) -> Iterator[HeldBy]:
    if last_index >= state.committed_index:
        yield HeldBy.COMMIT  # the log must begin with a committed entry
    if state.covered_index is not None and last_index > state.covered_index:
        yield HeldBy.STATE
    if last_index > state.held_by_all_index:
        yield HeldBy.VOTERS


def _due_by_age(state: RetentionState, modified_ms: int) -> tuple[int | None, RemovalRule | None]:
    """Return when a file is due by its age, not before now, and by which rule."""
    policy = state.policy
    if policy.reserved_ms is None or modified_ms < 0:
        return None, None
    expired_ms = max(state.now_ms, modified_ms + policy.reserved_ms)
    at_ms = _next_hour_ms(policy.delete_hours, expired_ms, state.utc_offset_s)
    if at_ms != expired_ms and state.used_percent > policy.check_expired_percent:
        return expired_ms, RemovalRule.FILLING_VOLUME
    return at_ms, RemovalRule.AGE if at_ms is not None else None


def _next_hour_ms(hours: Sequence[int], from_ms: int, utc_offset_s: int) -> int | None:
    """Return the first moment, not before `from_ms`, in one of these hours of the local day."""
    offset_ms = utc_offset_s * 1000
    hour = (from_ms + offset_ms) // _HOUR_MS
    if hour % 24 in hours:
        return from_ms
    following = (hour + ahead for ahead in range(1, 25))
    return next(
        (each * _HOUR_MS - offset_ms for each in following if each % 24 in hours),
        None,
    )
