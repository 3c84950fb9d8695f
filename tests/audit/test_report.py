"""Deriving the verdict, the summary and the text report from findings."""

import re
from pathlib import Path

import pytest

from dledger_audit import explain as texts
from dledger_audit import report
from dledger_audit.audit import AuditResult
from dledger_audit.capture import Capture
from dledger_audit.checks.coverage import MemberTotals
from dledger_audit.checks.integrity import SEVERITIES
from dledger_audit.explain import explain
from dledger_audit.verdict import CRITICAL, DIVERGENCE, EXIT_CODES, INFO, OMISSION, WARNING, judge
from dledger_formats.audit import AuditSummary, Finding, Verdict
from pyspark_dledger.layout import Flag


def finding(check: str, severity: str = CRITICAL, member: str = "n1", index: int = 5) -> Finding:
    return Finding(
        check=check,
        severity=severity,
        member=member,
        segment="0" * 20,
        first_index=index,
        last_index=index,
        detail="something is wrong",
    )


UNREACHABLE = finding("member_unreachable", WARNING)
STALE_INDEX = finding("index_file_differs", WARNING)
DAMAGE = finding("bad_body_crc")
DIVERGED = finding("differs_from_majority", index=9)
TOTALS = MemberTotals(
    first_index=0, last_index=1234, entries=1235, record_bytes=98765, damaged=0, uncovered=0
)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([], Verdict.SOUND),
        ([finding("no_crc", INFO)], Verdict.SOUND),
        ([STALE_INDEX], Verdict.SOUND),
        ([STALE_INDEX, UNREACHABLE], Verdict.INCOMPLETE),
        ([finding("unreadable", WARNING)], Verdict.INCOMPLETE),
        ([finding("begins_later", WARNING)], Verdict.INCOMPLETE),
        ([UNREACHABLE, DAMAGE], Verdict.DAMAGED),
        ([finding("too_few_copies")], Verdict.DAMAGED),
        ([UNREACHABLE, DAMAGE, DIVERGED], Verdict.DIVERGED),
        ([finding("no_majority", member="")], Verdict.DIVERGED),
    ],
)
def test_the_verdict_is_the_worst_that_any_finding_causes(
    findings: list[Finding], verdict: Verdict
) -> None:
    assert judge(findings) is verdict


def test_every_verdict_has_a_distinct_exit_code() -> None:
    assert len(set(EXIT_CODES.values())) == len(Verdict)


def test_every_check_of_the_decoder_has_a_severity_and_an_explanation() -> None:
    assert set(Flag) == SEVERITIES.keys()
    names = {flag.name.lower() for flag in Flag if flag.name}
    explained = texts.DAMAGE.keys() | texts.OTHERS.keys() | texts.SNAPSHOTS.keys()
    assert names | DIVERGENCE <= explained
    assert len(explained) == len(texts.DAMAGE) + len(texts.OTHERS) + len(texts.SNAPSHOTS)


def test_an_explanation_counts_entries() -> None:
    assert explain("bad_magic", 1).startswith("1 entry: ")
    assert explain("bad_magic", 3, is_sparse=True).startswith("3 entries in this range: ")
    assert explain("no_majority", 1200, members="n0, n1").startswith("1,200 entries: n0, n1 hold ")


def test_a_rebuild_is_advised_only_where_the_entries_are_intact_elsewhere() -> None:
    assert explain("bad_magic", 1, is_elsewhere=True).endswith("rebuild the member")
    assert explain("bad_magic", 1, is_elsewhere=False).endswith("do not rebuild the member")


def summary_of(*findings: Finding) -> tuple[AuditSummary, str]:
    captured = Capture(group="g", urls={"n0": "", "n1": ""}, manifests={}, findings=())
    audited = AuditResult(findings=findings, totals={"n0": TOTALS})
    summary = report.summarize(captured, audited)
    return summary, report.text(captured, summary, audited)


def test_the_findings_that_decide_the_verdict_come_first() -> None:
    summary, text = summary_of(UNREACHABLE, DAMAGE, DIVERGED)

    assert summary.first_findings == [DIVERGED, DAMAGE, UNREACHABLE]
    assert "n1" in summary.message
    assert "index 9" in summary.message
    assert text.startswith("Diverged: ")


def test_the_text_shows_every_member_and_every_finding() -> None:
    _, text = summary_of(DAMAGE, UNREACHABLE)

    rows = text.splitlines()
    assert rows[3].split() == ["n0", "1,235", "0", "1,234", "98,765", "0", "0"]
    assert rows[4].split() == ["n1", *"------"]
    assert "critical  bad_body_crc  n1, segment 00000000000000000000, index 5" in text
    assert "warning   member_unreachable" in text


def test_a_summary_of_many_findings_fits_a_termination_message() -> None:
    summary, text = summary_of(*(finding("bad_magic", index=index) for index in range(500)))

    assert summary.findings == 500
    assert len(summary.to_json()) <= 4096
    assert AuditSummary.from_json(summary.to_json()).first_findings
    assert "and 400 more findings" in text


def test_every_check_is_explained_to_operators() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "audits.md").read_text()
    rows = page.partition("### The checks of an audit")[2].partition("\n## ")[0]

    assert set(re.findall(r"`([a-z_]+)`", rows)) >= {
        *texts.DAMAGE, *texts.OTHERS, *texts.SNAPSHOTS, *DIVERGENCE, *OMISSION,
    }  # fmt: skip
