"""Whole audits: logs with known faults are served over HTTP, and Spark must report each fault."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from dledger_audit.audit import audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.history.audit import audit_with_history
from dledger_audit.history.history_file import History, load, save
from dledger_audit.passes import SparkPasses
from dledger_audit.report import summarize
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.served_files import SNAPSHOT_DATA, snapshot_file
from dledger_formats.http.status import Manifest
from dledger_logs import damage
from dledger_logs.histories import history, register_history, with_membership, with_term
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import Interrupt, never, served, without_segment
from dledger_logs.state import register_after, with_snapshots, write_snapshot
from dledger_logs.write import Shape, write_log

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
        return summarize(
            captured,
            audit(
                SparkPasses(spark.sparkContext, captured.urls),
                captured,
                lambda: ask_again(captured),
            ),
        )


def findings(summary: AuditSummary) -> set[Found]:
    return {(f.check, f.member, f.first_index, f.last_index) for f in summary.first_findings}


def test_every_kind_of_damage_is_reported_with_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each segment of n1 has one kind of damage; the stale term has correct checksums."""
    stale = 6553
    n1 = write_log(tmp_path / "n1", with_term(ENTRIES, stale, 2), SMALL)
    logs = {"n0": write_log(tmp_path / "n0", ENTRIES, SMALL), "n1": n1}
    logs["n2"] = write_log(tmp_path / "n2", ENTRIES, SMALL)
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


def test_snapshots_are_verified_over_http(spark: SparkSession, tmp_path: Path) -> None:
    """n0 has a rotten one, n1 cannot read one from its disk, and n2 has another state in one."""
    entries = register_history(COUNT)
    logs = {f"n{k}": write_log(tmp_path / f"n{k}", entries, LARGE) for k in range(3)}
    says = {}
    for number, (name, log) in enumerate(logs.items()):
        held = [
            write_snapshot(log.root, k, entries[k].term, register_after(entries, applied))
            for k, applied in ((5000 + number, 5000 + number - 4 * (number == 2)), (8500, 8500))
        ]
        says[name] = with_snapshots(manifest(log, name, peers=logs), *held)
    path = logs["n0"].root / snapshot_file(8500, SNAPSHOT_DATA)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    fails = snapshot_file(5001, SNAPSHOT_DATA)

    summary = summary_of(
        spark, logs, says, {"n1": lambda path: 599 if path.endswith(fails) else None}
    )

    assert findings(summary) == {
        ("bad_snapshot", "n0", 8500, 8500),
        ("bad_snapshot", "n1", 5001, 5001),
        ("wrong_snapshot", "n2", 5002, 5002),
    }
    assert "a sector is bad" in next(
        each.detail for each in summary.first_findings if each.member == "n1"
    )


def test_an_audit_since_the_last_one_reads_a_part_and_has_the_rest_from_its_history(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "n0", ENTRIES, LARGE)
    history, summaries = History(group="g"), list[AuditSummary]()
    with served(log.root, replace(manifest(log, "n0"), life="a")) as url:
        captured = capture("g", {"n0": url})
        passes = SparkPasses(spark.sparkContext, captured.urls)
        for _ in range(2):
            result, history = audit_with_history(
                passes, captured, lambda: ask_again(captured), history, since_last=True
            )
            summaries.append(summarize(captured, result))
            save(history, tmp_path / "history")
            history = load(tmp_path / "history", "g")

    first, second = summaries
    assert (first.verdict, second.verdict) == (Verdict.SOUND, Verdict.SOUND)
    assert (first.entries, second.entries) == (COUNT, COUNT)
    assert findings(first) == set()
    (known,) = second.first_findings
    assert known.check == "known_before"
    assert known.detail.startswith("4,096 entries of the members' logs were not read again")
