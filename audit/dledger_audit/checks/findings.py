"""Runs of entries, and findings about them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from dledger_audit.explain import explain
from dledger_formats.audit import Finding
from dledger_formats.log import disk
from pyspark_dledger.layout import Flag

RUNS_MAX: Final = 100
"""Runs of one member and check that are reported one by one; the others are merged into one."""
REASON_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Run:
    """Entries with one problem, consecutive unless `entries` is less than the range."""

    check: str
    severity: str
    member: str = ""
    segment: int = -1
    """Position of the data file; -1 if the run is not in one."""
    first_index: int
    last_index: int
    entries: int
    reason: str = ""
    """Human-readable details, for example what the member answered."""


def run_of(check: str, severity: str, first_index: int, last_index: int, **fields: object) -> Run:
    """Return a run of consecutive entries."""
    return Run(
        check=check,
        severity=severity,
        first_index=first_index,
        last_index=last_index,
        entries=max(0, last_index - first_index + 1),
        **fields,  # type: ignore[arg-type]
    )


def merged(runs: Iterable[Run]) -> list[Run]:
    """Join runs that continue each other in a segment; merge those beyond RUNS_MAX into one."""
    joined: list[Run] = []
    for _, of_member in groupby(sorted(runs), key=lambda run: (run.check, run.member)):
        of_check: list[Run] = []
        for run in of_member:
            if of_check and _continues(of_check[-1], run):
                of_check[-1] = _sum([of_check[-1], run])
            else:
                of_check.append(run)
        joined += of_check[:RUNS_MAX]
        if rest := of_check[RUNS_MAX:]:
            joined.append(replace(_sum(rest), segment=-1))
    return joined


def _continues(run: Run, following: Run) -> bool:
    is_dense = run.entries == run.last_index - run.first_index + 1
    same_place = (run.segment, run.reason, run.severity) == (
        following.segment,
        following.reason,
        following.severity,
    )
    return is_dense and same_place and following.first_index == run.last_index + 1


def _sum(runs: list[Run]) -> Run:
    return replace(
        runs[0],
        first_index=min(run.first_index for run in runs),
        last_index=max(run.last_index for run in runs),
        entries=sum(run.entries for run in runs),
    )


def finding(run: Run, *, is_elsewhere: bool, members: str = "") -> Finding:
    """Describe a run; `is_elsewhere` says whether a majority was read with the entries intact."""
    is_sparse = run.entries != run.last_index - run.first_index + 1
    return Finding(
        check=run.check,
        severity=run.severity,
        member=run.member,
        segment=disk.file_name(run.segment) if run.segment >= 0 else "",
        first_index=run.first_index,
        last_index=run.last_index,
        detail=explain(
            run.check,
            run.entries,
            members=members,
            is_sparse=is_sparse,
            is_elsewhere=is_elsewhere,
            reason=run.reason[:REASON_LENGTH_MAX],
        ),
    )


def check_name(flag: Flag) -> str:
    """Return the name of the check that a decoder's flag stands for."""
    assert flag.name is not None, "expected a flag with one bit"
    return flag.name.lower()
