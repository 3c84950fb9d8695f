"""Check that everything that is missing before a log's first entry was removed by a rule.

A member's manifest says which ranges it removed, by which rule, and what it knew then. A range is
explained if the member recorded it, its entries were committed, the state no longer needed them,
and every voter held them or the member says that it was forced. If there is a state, the log must
also continue a snapshot, and retention must have left what follows the oldest one.

A manifest describes one moment: the log of a leader may be replacing the member's, so that its
status and its record are of different logs. A fault therefore counts only if two manifests show it,
one from before the logs are read and one from after that. If the member does not answer the second
time, the fault is not confirmed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dledger_audit.checks.electorate import Held, is_counted
from dledger_audit.checks.findings import Run, run_of
from dledger_audit.verdict import CRITICAL, INFO, REMOVED, UNRECORDED
from dledger_formats.http.retention import Removal, RemovalRule, RetentionState
from dledger_formats.http.status import Manifest

_LISTED_MAX: Final = 3
_UNKNOWN: Final = {
    RemovalRule.EARLIER: "the member keeps only its last 100 removals",
    RemovalRule.UNRECORDED: (
        "an earlier release or Java removed them, or the record of their removal was lost"
    ),
}
_OF_RETENTION: Final = frozenset(
    {RemovalRule.SIZE, RemovalRule.AGE, RemovalRule.FILLING_VOLUME, RemovalRule.FORCE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Missing entries, and why their removal is not explained."""

    kind: str
    """What is wrong; equal for equal faults of two manifests."""
    first_index: int
    last_index: int
    reason: str


def removed(
    first: Mapping[str, Manifest], again: Mapping[str, Manifest], held: Mapping[str, Held]
) -> Iterator[Run]:
    """Yield a run for each missing range that is not explained, or whose rule is not known.

    `first` are the first manifests of the members that were read, `again` those of the members
    that answered once more, and `held` is what each member that was read holds.
    """
    for member, manifest in first.items():
        present = again.get(member, manifest)
        if present.retention is not None:
            begin_index = present.status.ledger_begin_index
            yield from _unrecorded(member, present.retention, begin_index)
        twice = _faults_of(present) if member in again else []
        for fault in _shown_twice(_faults_of(manifest), twice):
            yield run_of(
                REMOVED,
                CRITICAL,
                fault.first_index,
                fault.last_index,
                member=member,
                reason=f"{fault.reason}, and {_left(fault, held)}",
            )


def shown_once(
    first: Mapping[str, Manifest], again: Mapping[str, Manifest]
) -> Iterator[tuple[str, int, int]]:
    """Yield each member whose manifest shows faults and that did not answer again, and the range.

    The range holds all of the member's faults.
    """
    for member, manifest in first.items():
        found = _faults_of(manifest) if member not in again else []
        if found:
            low, high = (
                min(each.first_index for each in found),
                max(each.last_index for each in found),
            )
            yield member, low, high


def faults(retention: RetentionState, begin_index: int) -> Iterator[Fault]:
    """Yield the faults before a log's first entry, given the member's record."""
    beyond = list(_beyond_snapshots(retention, begin_index))
    next_index = 0
    for removal in retention.removals:
        if next_index >= begin_index:
            break
        if removal.last_index < max(next_index, removal.first_index):
            continue
        if removal.first_index > next_index:
            yield _unexplained(next_index, min(removal.first_index, begin_index) - 1)
        first_index = max(next_index, removal.first_index)
        last_index = min(removal.last_index, begin_index - 1)
        if first_index <= last_index:
            for kind, reason in _broken_rules(removal):
                yield Fault(
                    kind=kind,
                    first_index=first_index,
                    last_index=last_index,
                    reason=f"rule {removal.rule}: {reason}",
                )
            if not beyond:
                yield from _needed_by_oldest(retention, removal, first_index, last_index)
        next_index = removal.last_index + 1
    if next_index < begin_index:
        yield _unexplained(next_index, begin_index - 1)
    yield from beyond


def nowhere(first_index: int, last_index: int, held: Iterable[Held]) -> list[tuple[int, int]]:
    """Return the ranges between two indexes that no member holds."""
    gone, next_index = [], first_index
    for each in sorted(held, key=lambda each: each.first):
        if each.last < max(each.first, next_index):
            continue
        if each.first > last_index:
            break
        if each.first > next_index:
            gone.append((next_index, each.first - 1))
        next_index = each.last + 1
    if next_index <= last_index:
        gone.append((next_index, last_index))
    return gone


def _faults_of(manifest: Manifest) -> list[Fault]:
    """Return the faults that a manifest shows; none if it does not report its retention.

    A member that joins or heals has none: its log and its state need not fit together yet.
    """
    if manifest.retention is None or not is_counted(manifest.status):
        return []
    return list(faults(manifest.retention, manifest.status.ledger_begin_index))


def _shown_twice(first: Sequence[Fault], again: Sequence[Fault]) -> Iterator[Fault]:
    """Yield the faults that two manifests agree on, for the entries that both name."""
    for one in first:
        for other in again:
            first_index = max(one.first_index, other.first_index)
            last_index = min(one.last_index, other.last_index)
            if one.kind == other.kind and first_index <= last_index:
                yield replace(other, first_index=first_index, last_index=last_index)


def _unexplained(first_index: int, last_index: int) -> Fault:
    return Fault(
        kind="record",
        first_index=first_index,
        last_index=last_index,
        reason="the member has no record that it removed them",
    )


def _broken_rules(removal: Removal) -> Iterator[tuple[str, str]]:
    """Yield why a removal by retention was not allowed; nothing is known of other removals."""
    if removal.rule not in _OF_RETENTION:
        return
    if removal.last_index > removal.committed_index:
        yield "commit", f"the committed index was {removal.committed_index}"
    if removal.covered_index is not None and removal.last_index > removal.covered_index:
        yield "state", f"the state still needed the entries after {removal.covered_index}"
    if removal.last_index > removal.held_by_all_index and not removal.is_forced:
        held = f"all voters were known to hold only the entries up to {removal.held_by_all_index}"
        yield "voters", f"{held}, and the removal was not forced"


def _needed_by_oldest(
    retention: RetentionState, removal: Removal, first_index: int, last_index: int
) -> Iterator[Fault]:
    """Yield the removed entries that a state restored from the oldest snapshot still needs.

    A member removes nothing after its oldest sound snapshot, and later ones only replace that one.
    So the record of such entries is wrong. Only a log that was taken from a leader may begin after
    an older snapshot of the member's own.
    """
    covered_index = removal.covered_index if removal.rule in _OF_RETENTION else None
    if covered_index is None or not retention.snapshots:
        return
    oldest_index = min(each.last_included_index for each in retention.snapshots)
    low, high = max(first_index, oldest_index + 1), min(last_index, covered_index)
    if low <= high:
        yield Fault(
            kind="oldest",
            first_index=low,
            last_index=high,
            reason=f"rule {removal.rule}: the oldest sound snapshot ends with entry "
            f"{oldest_index}, and the state needs what follows it",
        )


def _beyond_snapshots(retention: RetentionState, begin_index: int) -> Iterator[Fault]:
    """Yield the entries after the newest snapshot that the log lacks, if there is a state."""
    if retention.covered_index is None:
        return
    newest_index = max((each.last_included_index for each in retention.snapshots), default=-1)
    if begin_index - 1 > newest_index:
        ends = f"the newest sound snapshot ends with entry {newest_index}"
        reason = ends if retention.snapshots else "there is no sound snapshot"
        yield Fault(
            kind="snapshots",
            first_index=newest_index + 1,
            last_index=begin_index - 1,
            reason=f"{reason}, so the state cannot be restored without them",
        )


def _unrecorded(member: str, retention: RetentionState, begin_index: int) -> Iterator[Run]:
    """Yield the removals of which the member knows only that they were intended."""
    for removal in retention.removals:
        reason = _UNKNOWN.get(removal.rule)
        last_index = min(removal.last_index, begin_index - 1)
        if reason and removal.first_index <= last_index:
            yield run_of(
                UNRECORDED, INFO, removal.first_index, last_index, member=member, reason=reason
            )


def _left(fault: Fault, held: Mapping[str, Held]) -> str:
    """Return a text that says which of the entries no member has."""
    gone = nowhere(fault.first_index, fault.last_index, held.values())
    if not gone:
        return "other members hold them"
    listed = [f"{first}" if first == last else f"{first}-{last}" for first, last in gone]
    more = ", …" if len(listed) > _LISTED_MAX else ""
    return f"no member that was read has {', '.join(listed[:_LISTED_MAX])}{more}"
