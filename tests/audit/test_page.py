"""The HTML page of an audit: what it shows, what it cannot do, and how large it gets."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dledger_audit import page, report
from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture, capture
from dledger_audit.checks.coverage import MemberTotals, SegmentTotals
from dledger_audit.compaction.amounts import NO_DECODER, Amounts, SegmentAmounts
from dledger_formats.audit import Finding
from dledger_formats.http.retention import HeldSnapshot, Removal, RemovalRule
from dledger_logs import damage
from dledger_logs.fronts import with_retention
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.write import write_log
from dledger_scan.local_audit import Answer, LocalPasses

GOLDEN = Path(__file__).parent / "page.html"
ENDED_AT = datetime(2026, 3, 1, 3, 30, tzinfo=UTC)
HOSTILE = "</td><script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)>&\x1b"
VOID = {"meta"}


class Parsed(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, markup: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(markup.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def audited(folder: Path) -> tuple[Capture, AuditResult]:
    """An audit of three members: n1 has removed its front, and n2 has a damaged entry."""
    shape = small_shape(4096)
    logs = {each: write_log(folder / each, history(120), shape) for each in ("n0", "n1", "n2")}
    damage.flip_body(logs["n2"], 77)
    served = {each: manifest(log, each, peers=logs) for each, log in logs.items()}
    first = served["n1"].data[1].first_index
    removal = Removal(
        first_index=0, last_index=first - 1, rule=RemovalRule.AGE, removed_at_ms=1_772_000_000_000,
        committed_index=119, held_by_all_index=119,
    )  # fmt: skip
    log = damage.remove_front(logs["n1"], 1)
    served["n1"] = with_retention(manifest(log, "n1", peers=logs), removal)
    served["n0"] = with_retention(served["n0"])
    logs["n1"] = log
    captured = capture("g", {each: each for each in logs}, lambda url: Answer(served[url]))
    return captured, audit(LocalPasses(logs), captured, lambda: served)


def rendered(captured: Capture, result: AuditResult) -> bytes:
    return page.render(captured, report.summarize(captured, result), result, ENDED_AT)


def test_the_page_of_an_audit_is_the_golden_one(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    markup = rendered(*audited(tmp_path))
    if request.config.getoption("--write-pages"):
        GOLDEN.write_bytes(markup)

    assert markup == GOLDEN.read_bytes(), "run this file with --write-pages, and look at the page"


def test_the_page_shows_verdict_members_segments_and_what_was_removed(tmp_path: Path) -> None:
    shown = " ".join(Parsed(rendered(*audited(tmp_path))).texts)

    assert "Damaged" in shown
    assert "bad_body_crc" in shown
    assert "1 damaged" in shown, "in the cell of the segment"
    assert "the segment had expired" in shown
    assert "No retention is set." in shown


def test_the_page_opens_no_url_and_runs_nothing(tmp_path: Path) -> None:
    markup = rendered(*audited(tmp_path))
    found = Parsed(markup)

    assert found.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "span",
        "table", "tr", "th", "td",
    }  # fmt: skip
    assert {name for name, _ in found.attributes} <= {
        "lang", "charset", "http-equiv", "content", "class",
    }  # fmt: skip
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert not re.search(rb"url\(|@import|://", markup)


def hostile(captured: Capture, result: AuditResult) -> tuple[Capture, AuditResult]:
    """The same audit, if every text that members tell were an attack."""
    served = next(iter(captured.manifests.values()))
    finding = Finding(
        check=HOSTILE, severity="critical", member=HOSTILE, segment=HOSTILE, first_index=1,
        last_index=2, detail=HOSTILE,
    )  # fmt: skip
    urls = {HOSTILE: HOSTILE}
    return (
        replace(captured, group=HOSTILE, urls=urls, manifests={HOSTILE: served}),
        replace(result, findings=(finding,)),
    )


def test_whatever_members_tell_becomes_text_and_no_markup(tmp_path: Path) -> None:
    plain = Parsed(rendered(*audited(tmp_path)))
    attacked = Parsed(rendered(*hostile(*audited(tmp_path / "again"))))

    assert attacked.tags <= plain.tags
    assert {name for name, _ in attacked.attributes} <= {name for name, _ in plain.attributes}
    texts = " ".join(attacked.texts)
    assert HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in texts
    assert "\x1b" not in texts
    assert attacked.open == []


def test_the_page_of_the_largest_audit_has_at_most_a_mebibyte(tmp_path: Path) -> None:
    captured, result = audited(tmp_path)
    members = [f"n{ordinal}" for ordinal in range(7)]
    removal = Removal(
        first_index=0,
        last_index=2**62,
        rule=RemovalRule.LEADER_LOG,
        removed_at_ms=1_772_000_000_000,
    )
    snapshot = HeldSnapshot(
        last_included_index=2**62, last_included_term=9, data_bytes=2**40, data_crc32=1
    )
    served = with_retention(captured.manifests["n0"], *[removal] * 100, snapshots=[snapshot] * 100)
    finding = Finding(
        check="bad_body_crc", severity="critical", member="n1", segment="0" * 20,
        first_index=2**62, last_index=2**62, detail="x" * 10_000,
    )  # fmt: skip
    segments = tuple(
        SegmentTotals(
            member=member, segment=number << 30, first_index=2**62, last_index=2**62,
            record_bytes=2**30, damaged=1_000_000, absent=1_000_000,
        )
        for member in members
        for number in range(2000)
    )  # fmt: skip
    totals = MemberTotals(
        first_index=0, last_index=1, entries=2, record_bytes=3, damaged=0, uncovered=0
    )
    manifests = dict.fromkeys(members, served)
    markup = rendered(
        replace(captured, urls=dict.fromkeys(members, ""), manifests=manifests),
        replace(
            result, findings=(finding,) * 5000, segments=segments,
            totals=dict.fromkeys(members, totals),
        ),
    )  # fmt: skip

    assert 500_000 < len(markup) <= 1 << 20
    assert b"and 4,500 more findings" in markup
    assert b"and 1,600 older segments" in markup or b"and 1,600 more older segments" in markup


def test_the_page_shows_what_is_live_and_dead_in_each_segment(tmp_path: Path) -> None:
    captured, result = audited(tmp_path)
    amounts = Amounts(
        decoder="kv",
        tombstone_entries=9,
        clean_index=119,
        segments=[
            SegmentAmounts(
                segment=f"{number:020}", first_index=number, last_index=number, live_bytes=3_000,
                tombstone_bytes=1_000, dead_bytes=4_000,
            )
            for number in range(500)
        ],
    )  # fmt: skip
    texts = Parsed(rendered(captured, replace(result, compaction=amounts))).texts
    said = report.text(
        captured, report.summarize(captured, result), replace(result, compaction=amounts)
    )

    for words in (texts[texts.index("Live and dead") + 1], said):
        assert "up to entry 119, bodies of 1,500,000 bytes are live" in words
        assert "of 2,000,000 are dead by the decoder kv" in words
    assert "50 %" in texts
    assert texts.count("4,000") == 400
    assert "and 100 more older segments" in texts


def test_without_a_decoder_the_report_and_the_page_say_so(tmp_path: Path) -> None:
    captured, result = audited(tmp_path)
    plain = replace(result, compaction=NO_DECODER)

    assert (
        "Compaction: not known: no decoder was given (--decoder)."
        in Parsed(rendered(captured, plain)).texts
    )
    assert "compaction: not known: no decoder was given (--decoder)\n" in report.text(
        captured, report.summarize(captured, plain), plain
    )
