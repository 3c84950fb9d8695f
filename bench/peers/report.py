"""The figures as tables and as JSON."""

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence

from bench.peers.measurements import Figures, Plan


def report_json(machine: dict[str, object], plan: Plan, every: Sequence[Figures]) -> str:
    """Return all figures as JSON."""
    figures = [dataclasses.asdict(each) for each in every]
    return json.dumps(
        {"machine": machine, "plan": dataclasses.asdict(plan), "peers": figures}, indent=2
    )


def tables(every: Sequence[Figures]) -> Iterator[str]:
    """Yield the lines of the tables, in Markdown."""
    yield from _table("peer | an acknowledged append is | client", map(_about, every))
    yield from _table(
        "appends | in flight | appends/s | p50 ms | p99 ms | failed | members' µs per append "
        "| other work, processors",
        (line for each in every for line in _appends(each)),
    )
    yield from _table(
        "reads | log | way | entries/s | members' µs per entry | client's µs per entry "
        "| other work, processors",
        (line for each in every for line in _reads(each)),
    )
    yield from _table(
        "SIGKILL of the leader | kills | longest pause in ms: each | median | first new "
        "acknowledgement, median ms | failed appends",
        (_failover(each) for each in every if each.failover),
    )
    yield from _table(
        "idle, three members together | % of a processor | own memory MiB | mapped MiB",
        (_idle(each) for each in every),
    )
    for each in every:
        if each.failure:
            yield f"{each.description.name} FAILED: {each.failure}"


def _table(heading: str, rows: Iterator[str]) -> Iterator[str]:
    yield f"| {heading} |"
    yield "|" + " --- |" * (heading.count("|") + 1)
    yield from (f"| {row} |" for row in rows)
    yield ""


def _about(each: Figures) -> str:
    about = each.description
    return f"{about.name} | {about.promise} | {about.client}"


def _appends(each: Figures) -> Iterator[str]:
    for row in each.appends:
        yield (
            f"{each.description.name} | {row.in_flight} | {row.per_second:,.0f} "
            f"| {_ms(row.p50_ms)} | {_ms(row.p99_ms)} | {row.failed} | {row.members_us:,.1f} "
            f"| {row.others_cores:.2f}"
        )


def _reads(each: Figures) -> Iterator[str]:
    for row in each.reads:
        yield (
            f"{each.description.name} | {row.log} | {row.way} | {row.per_second:,.0f} "
            f"| {row.members_us:.2f} | {row.client_us:.2f} | {row.others_cores:.2f}"
        )


def _failover(each: Figures) -> str:
    gaps_ms = [row.gap_ms for row in each.failover]
    first_new_ms = statistics.median(row.first_new_ms for row in each.failover)
    return (
        f"{each.description.name} | {len(gaps_ms)} | {', '.join(f'{gap:,.0f}' for gap in gaps_ms)} "
        f"| {statistics.median(gaps_ms):,.0f} | {first_new_ms:,.0f} | {each.failed_in_failover}"
    )


def _idle(each: Figures) -> str:
    name, idle = each.description.name, each.idle
    if idle is None:
        return f"{name} | not measured | |"
    return f"{name} | {idle.processor_percent:.1f} | {idle.own_mib} | {idle.mapped_mib}"


def _ms(value: float | None) -> str:
    return "none" if value is None else f"{value:,.2f}"
