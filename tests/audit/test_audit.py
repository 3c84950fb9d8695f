"""Whole audits: logs with known faults are served over HTTP, and Spark must report each fault."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from dledger_audit.audit import audit
from dledger_audit.capture import capture
from dledger_audit.report import summarize
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import history, with_membership, with_other_body, with_term
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import Interrupt, never, served, without_segment
from dledger_logs.write import Entry, Shape, write_log

pytestmark = pytest.mark.spark

COUNT = 9000  # two whole chunks of 4096 entries, and a part of a third
ENTRIES = with_membership(history(COUNT), 4200, ("n0", "n1"), ("n2",))
LARGE = Shape(segment_bytes=1 << 20, index_segment_bytes=32 * 5000)
SMALL = Shape(segment_bytes=1 << 15, index_segment_bytes=32 * 1000)

Found: TypeAlias = tuple[str, str, int, int]
"""Check, member, first and last index."""


def summary_of(
    spark: SparkSession,
    logs: Mapping[str, Log],
    says: Mapping[str, Manifest] | None = None,
    interrupts: Mapping[str, Interrupt] | None = None,
) -> AuditSummary:
    """Serve the logs and audit them; `says` replaces manifests."""
    manifests = {member: manifest(log, member, peers=logs) for member, log in logs.items()}
    manifests |= says or {}
    with ExitStack() as stack:
        urls = {
            member: stack.enter_context(
                served(log.root, manifests[member], (interrupts or {}).get(member, never))
            )
            for member, log in logs.items()
        }
        captured = capture("g", urls)
        return summarize(captured, audit(spark, captured))


def findings(summary: AuditSummary) -> set[Found]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def test_sound_members_are_reported_sound_despite_different_layouts_and_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Segment sizes, positions, and entries after the committed index may differ."""
    tail = with_other_body(ENTRIES, COUNT - 1)
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", tail, replace(LARGE, segment_bytes=300_000, shift=4096)),
        "n2": write_log(tmp_path / "n2", ENTRIES[:8500], LARGE),
    }
    says = {"n1": manifest(logs["n1"], "n1", peers=logs, committed_index=COUNT - 2)}

    summary = summary_of(spark, logs, says)

    assert summary.verdict is Verdict.SOUND, summary
    assert summary.findings == 0
    assert summary.agreed_index == 8499
    assert summary.entries == COUNT
    assert (
        summary.record_bytes
        == sum(place.size for log in logs.values() for place in log.places)
        - len(tail[-1].body)
        - 48
    )
    assert summary.members == ["n0", "n1", "n2"]


def test_every_kind_of_damage_is_reported_with_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each segment of n1 has one kind of damage; the stale term has correct checksums."""
    stale = 6553
    n1 = write_log(tmp_path / "n1", with_term(ENTRIES, stale, 2), SMALL)
    logs = {"n0": write_log(tmp_path / "n0", ENTRIES, LARGE), "n1": n1}
    logs["n2"] = write_log(tmp_path / "n2", ENTRIES, LARGE)
    segments = (n1.places_in(name) for name in n1.segments if name != n1.place(stale).segment)
    expected: set[Found] = {("term_back", "n1", stale, stale)}

    def place(check: str, first: int = 7, last: int = 7) -> tuple[int, int]:
        places = next(segments)
        expected.add((check, "n1", places[first].index, places[last].index))
        return places[first].index, places[last].index

    for field, check in {
        "magic": "bad_magic",
        "size": "bad_size",
        "index": "bad_index",
        "term": "bad_chain_crc",
        "pos": "bad_chain_crc",
        "channel": "bad_chain_crc",
        "chain_crc": "bad_chain_crc",
        "body_size": "bad_size",
    }.items():
        damage.flip_header(n1, place(check)[0], field, 5)
    index, _ = place("bad_chain_crc")
    damage.flip_header(n1, index, "body_crc", 5)
    expected.add(("bad_body_crc", "n1", index, index))
    damage.flip_body(n1, place("bad_body_crc")[0])
    damage.zero(n1, *place("bad_magic", 10, 20))
    damage.truncate(n1, place("short_file", 30, -1)[0])
    next(segments)  # the file after a truncated one tells where that one should end
    first, last = place("missing_segment", 0, -1)
    says = {"n1": without_segment(manifest(n1, "n1", peers=logs), n1.place(first).segment)}
    damage.flip_unit(logs["n2"], 8999)
    expected.add(("index_file_differs", "n2", 8999, 8999))
    expected.add(("differs_from_majority", "n1", stale, stale))

    summary = summary_of(spark, logs, says)

    assert findings(summary) == expected
    assert summary.verdict is Verdict.DIVERGED  # only because of the stale term
    missing = next(f for f in summary.first_findings if f.check == "missing_segment")
    assert missing.segment == n1.place(first).segment
    assert missing.detail.startswith(f"{last - first + 1:,} entries")


def test_damage_that_checksums_detect_is_not_reported_as_divergence(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = {f"n{k}": write_log(tmp_path / f"n{k}", ENTRIES, LARGE) for k in range(3)}
    damage.flip_body(logs["n1"], 4097)
    damage.flip_header(logs["n1"], 8191, "term", 1)

    summary = summary_of(spark, logs)

    assert summary.verdict is Verdict.DAMAGED
    assert findings(summary) == {
        ("bad_body_crc", "n1", 4097, 4097),
        ("bad_chain_crc", "n1", 8191, 8191),
    }


def test_divergence_is_reported_entry_by_entry_up_to_the_edges(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first common entry and the last agreed entry lie in the middle of chunks."""
    begin, agreed = 100, 8600
    changed = with_other_body(with_other_body(ENTRIES, begin), agreed)
    later = replace(LARGE, first_index=begin)
    logs = {
        "n0": write_log(tmp_path / "n0", changed, LARGE),
        "n1": write_log(tmp_path / "n1", ENTRIES, LARGE),
        "n2": write_log(tmp_path / "n2", ENTRIES[begin:], later),
    }
    says = {"n1": manifest(logs["n1"], "n1", peers=logs, committed_index=agreed)}

    summary = summary_of(spark, logs, says)

    assert summary.verdict is Verdict.DIVERGED
    assert findings(summary) == {
        ("differs_from_majority", "n0", begin, agreed),
        ("begins_later", "n2", 0, begin - 1),
    }
    assert summary.first_findings[0].detail.startswith("2 entries")


def test_no_member_is_blamed_if_two_members_differ(spark: SparkSession, tmp_path: Path) -> None:
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", with_other_body(ENTRIES, 5000), LARGE),
    }

    summary = summary_of(spark, logs)

    assert summary.verdict is Verdict.DIVERGED
    assert findings(summary) == {("no_majority", "", 5000, 5000)}
    assert "n0, n1" in summary.first_findings[0].detail


def test_the_other_members_are_audited_if_some_cannot_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """n2 refuses every request; n1 serves its manifest and refuses one segment."""
    logs = {f"n{k}": write_log(tmp_path / f"n{k}", ENTRIES, LARGE) for k in range(3)}
    refused = logs["n1"].places_in(logs["n1"].segments[0])
    interrupts: dict[str, Interrupt] = {
        "n1": lambda path: 403 if path.endswith(f"data/{refused[0].segment}") else None,
        "n2": lambda _: 403,
    }

    summary = summary_of(spark, logs, interrupts=interrupts)

    assert summary.verdict is Verdict.INCOMPLETE
    assert summary.members == ["n0", "n1"]
    assert findings(summary) == {
        ("member_unreachable", "n2", -1, -1),
        ("unreadable", "n1", 0, refused[-1].index),
    }


def test_entries_that_a_majority_has_lost_are_reported_as_too_few_copies(
    spark: SparkSession, tmp_path: Path
) -> None:
    """n1 and n2 have lost the same body; n2 also lacks entries that it reports as committed."""
    logs = {
        "n0": write_log(tmp_path / "n0", ENTRIES, LARGE),
        "n1": write_log(tmp_path / "n1", ENTRIES, LARGE),
        "n2": write_log(tmp_path / "n2", ENTRIES[:8000], LARGE),
    }
    damage.flip_body(logs["n1"], 4321)
    damage.flip_body(logs["n2"], 4321)
    said = manifest(logs["n2"], "n2", peers=logs)
    says = {"n2": replace(said, status=replace(said.status, committed_index=COUNT - 1))}

    summary = summary_of(spark, logs, says)

    assert summary.verdict is Verdict.DAMAGED
    assert findings(summary) == {
        ("bad_body_crc", "n1", 4321, 4321),
        ("bad_body_crc", "n2", 4321, 4321),
        ("too_few_copies", "", 4321, 4321),
        ("missing_entries", "n2", 8000, COUNT - 1),
    }


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"n0": ENTRIES[:1]}, "1 member of g: the same entries up to index 0"),
        ({"n0": [], "n1": []}, "2 members of g: nothing is committed yet"),
    ],
    ids=["a-group-of-one-with-a-noop", "empty-logs"],
)
def test_groups_with_almost_no_entries_are_sound(
    spark: SparkSession, tmp_path: Path, entries: Mapping[str, list[Entry]], said: str
) -> None:
    logs = {member: write_log(tmp_path / member, log, LARGE) for member, log in entries.items()}

    summary = summary_of(spark, logs)

    assert summary.verdict is Verdict.SOUND
    assert summary.message == said
    assert summary.findings == 0
