"""One audit: from the members' manifests to findings and totals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dledger_audit.capture import Capture, unconfirmed
from dledger_audit.checks.agreement import READ_AGAIN, WEAK, Outcome
from dledger_audit.checks.comparison import Comparison, Range, compare
from dledger_audit.checks.continuity import continuity, spans
from dledger_audit.checks.coverage import NOTHING, MemberTotals, SegmentTotals, segments, totals
from dledger_audit.checks.electorate import Electorate
from dledger_audit.checks.findings import Run, finding, merged, run_of
from dledger_audit.checks.integrity import integrity
from dledger_audit.checks.next_removal import Outlook, outlooks
from dledger_audit.checks.removed import removed, shown_once
from dledger_audit.checks.seen import unshown
from dledger_audit.checks.snapshot import snapshots
from dledger_audit.compaction.amounts import Amounts
from dledger_audit.passes import Passes
from dledger_audit.pieces import PieceComparer, outcomes_of
from dledger_audit.settle import AskAgain, Settled, ends_of, settle, sizes_of
from dledger_audit.snapshots.gathering import Gathered, gather
from dledger_audit.snapshots.replay import Replayed, replay
from dledger_audit.verdict import CHANGED, CRITICAL, DIVERGENCE, HISTORY, REMOVED, WARNING
from dledger_formats.audit import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit, before it is rendered as a report."""

    findings: tuple[Finding, ...]
    totals: Mapping[str, MemberTotals]
    """Totals by member id, for every member that answered."""
    segments: tuple[SegmentTotals, ...] = ()
    """What was read of each segment of each member."""
    outlooks: tuple[Outlook, ...] = ()
    """What each member that reports its retention removes next."""
    compaction: Amounts | None = None
    """What a first run of compaction would drop now; None if no member answered."""


def audit(passes: Passes, capture: Capture, ask_again: AskAgain) -> AuditResult:
    """Read the logs once; read what moved meanwhile, and what differs, a second time."""
    settled = settle(passes, capture, ask_again)
    comparison = compare(settled.table, settled.electorate)
    outcomes: list[Outcome] = []
    if comparison.disputed:
        comparer = PieceComparer(
            settled.electorate, comparison.disputed, comparison.fresh, comparison.differing
        )
        outcomes = outcomes_of(passes.outcomes(settled.capture.manifests, comparer))
        outcomes += unshown(comparison.differences, outcomes, settled.electorate)
    gathered = gather(passes, {**settled.capture.manifests, **settled.again}, ask_again)
    replayed = replay(passes, gathered)
    counted = totals(settled.table)
    return AuditResult(
        findings=(
            *settled.capture.findings,
            *findings_of(settled, comparison, outcomes),
            *snapshot_findings(gathered, replayed, settled.electorate),
        ),
        totals={member: counted.get(member, NOTHING) for member in capture.manifests},
        segments=tuple(segments(settled.table)),
        outlooks=tuple(outlooks({**capture.manifests, **settled.again}, capture.voters)),
    )


def findings_of(
    settled: Settled, comparison: Comparison, outcomes: Sequence[Outcome]
) -> list[Finding]:
    """Judge what was read. Pure."""
    manifests, table = settled.capture.manifests, settled.table
    weak = sorted(
        [
            *comparison.weak,
            *((each.first_index, each.last_index) for each in outcomes if each.kind == WEAK),
        ]
    )
    runs = merged(
        [
            *integrity(table, ends_of(manifests)),
            *continuity(spans(table), settled.electorate.held, sizes_of(manifests)),
            *removed(settled.first, settled.again, settled.electorate.held),
            *comparison.too_few,
            *_runs(outcomes),
        ]
    )
    undecided = {
        (each.kind, each.first_index): each.members
        for each in outcomes
        if each.members and each.kind != READ_AGAIN
    }
    once = shown_once(settled.first, settled.again)
    return [
        *(unconfirmed(member, [REMOVED], first, last) for member, first, last in once),
        *(
            finding(
                run,
                is_elsewhere=not _touches(weak, run) and _is_held(run, settled.electorate),
                members=undecided.get((run.check, run.first_index), ""),
            )
            for run in runs
        ),
    ]


def snapshot_findings(
    gathered: Gathered, replayed: Replayed, electorate: Electorate
) -> list[Finding]:
    """Judge the snapshots. Pure."""
    return [
        finding(run, is_elsewhere=False)
        for run in merged(snapshots(gathered, electorate, replayed))
    ]


def _runs(outcomes: Sequence[Outcome]) -> Iterator[Run]:
    for each in outcomes:
        if each.kind not in (WEAK, READ_AGAIN) and not _is_explained(each, outcomes):
            yield run_of(
                each.kind,
                WARNING if each.kind == CHANGED else CRITICAL,
                each.first_index,
                each.last_index,
                member=each.member,
                segment=each.segment,
                reason=each.reason,
            )


def _is_explained(outcome: Outcome, outcomes: Sequence[Outcome]) -> bool:
    """Return whether histories differ only because of a difference that another outcome names."""
    return outcome.kind == HISTORY and any(
        each.kind in DIVERGENCE
        and each.first_index < outcome.first_index
        and each.member in ("", outcome.member)
        for each in outcomes
    )


def _touches(ranges: Sequence[Range], run: Run) -> bool:
    """Return whether any of the run's entries is in any of the ranges."""
    return any(first <= run.last_index and run.first_index <= last for first, last in ranges)


def _is_held(run: Run, electorate: Electorate) -> bool:
    """Return whether a majority of the voters holds entries that are missing at a log's front.

    Entries that no member holds are in no piece, so the comparison does not know them.
    """
    if run.check != REMOVED:
        return True
    holders = [
        member
        for member in electorate.counted
        if electorate.held[member].first <= run.first_index
        and run.last_index <= electorate.held[member].last
    ]
    return len(holders) >= electorate.majority
