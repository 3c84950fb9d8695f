"""Real members are sound: what they write raises no finding, also across restarts and retention."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import Capture, ask_again, capture
from dledger_audit.checks.next_removal import HeldBy
from dledger_audit.report import summarize
from dledger_client.client import DLedgerClient
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.retention import RemovalRule
from dledger_formats.http.served_files import SNAPSHOT_DATA, snapshot_file
from dledger_formats.protocol.register import SET
from dledger_node import passing_reads
from dledger_scan.local_audit import RemotePasses
from dledger_scan.log_rows import rows_of
from pyspark_dledger.http_reader import HttpFiles
from pyspark_dledger.options import HEADERS, INDEX
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

AUDITS = 8
ROUNDS_PER_AUDIT = 10


def audit_of(group: NodeGroup) -> tuple[Capture, AuditResult]:
    urls = {
        member: f"http://{group.host(member)}:{group.http_ports[member]}"
        for member in group.running()
    }
    captured = capture("g", urls)
    with closing(RemotePasses(urls)) as passes:
        return captured, audit(passes, captured, lambda: ask_again(captured))


def audited(group: NodeGroup) -> AuditSummary:
    return summarize(*audit_of(group))


def checkpointed_index(group: NodeGroup, member: str) -> int:
    told = group.manifest(member).retention
    return told.committed_index if told is not None else -1


def set_registers_and_see_removals(group: NodeGroup) -> bool:
    """Set registers, and tell whether each member has removed the front of its log."""
    asyncio.run(set_registers(group, 2000))
    return all(group.status(member).ledger_begin_index > 0 for member in group.peers)


async def set_registers(group: NodeGroup, count: int) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        pairs = [SET.pack(number % 70, number) for number in range(count)]
        await client.append_batch(pairs, deadline_s=60)


async def append(group: NodeGroup, sizes: range) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch([os.urandom(size) for size in sizes], deadline_s=60)


def test_what_members_write_across_restarts_and_retention_is_sound(tmp_path: Path) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12,
        retention_bytes=5 << 16,
    ) as group:  # fmt: skip
        for first in range(3):
            asyncio.run(append(group, range(first, 1500, 3)))
            master = group.master()
            group.stop(master)
            group.start(master)
            group.wait_until_up(master)
            group.master()
        group.wait_for_status(
            group.master(), lambda view: view.ledger_begin_index > 0, "has removed segments"
        )

        summary = audited(group)

    assert summary.verdict is Verdict.SOUND, summary
    assert not summary.first_findings
    assert summary.entries > 100


def test_each_level_says_the_same_of_the_log_of_real_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, fetched = HttpFiles.read, dict[str, int]()

    def counted(self: HttpFiles, folder: str, name: str, start: int, end: int) -> bytearray:
        raw = read(self, folder, name, start, end)
        fetched[folder] = fetched.get(folder, 0) + len(raw)
        return raw

    monkeypatch.setattr(HttpFiles, "read", counted)
    columns = {"index": "bigint", "term": "bigint", "size": "int"}
    with NodeGroup(tmp_path, segment_size_bytes=4 << 20, index_segment_size_bytes=1 << 12) as group:
        asyncio.run(append(group, range(1, 1000)))
        asyncio.run(append(group, range(200_000, 200_030)))
        path = ",".join(
            f"{member}=http://{group.host(member)}:{group.http_ports[member]}"
            for member in group.peers
        )
        full = rows_of(path, columns)
        by_level = {}
        for level in (INDEX, HEADERS):
            fetched.clear()
            assert rows_of(path, columns, level=level) == full
            by_level[level] = fetched.get("data", 0)

    assert len(full) > 1029
    assert by_level[INDEX] == 0
    assert by_level[HEADERS] < sum(row["size"] for row in full) / 4


def test_the_report_names_the_voter_for_which_segments_are_kept(tmp_path: Path) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12,
        retention_bytes=3 << 16,
    ) as group:  # fmt: skip
        master = group.master()
        away = next(member for member in group.peers if member != master)
        group.stop(away)
        asyncio.run(append(group, range(1000)))
        for member in group.running():
            wait_for(
                lambda member=member: checkpointed_index(group, member) >= 1000,
                f"{member} has saved a checkpoint",
            )

        _, found = audit_of(group)

    assert {outlook.member for outlook in found.outlooks} == group.peers.keys() - {away}
    for outlook in found.outlooks:
        assert outlook.next_round.segments == 0
        oldest = outlook.segments[0]
        assert (oldest.rule, oldest.is_due) == (RemovalRule.SIZE, True)
        assert oldest.held_by == [HeldBy.VOTERS]
        assert oldest.lagging == {away: -1}
        assert outlook.segments[-1].is_due is False


def test_what_members_with_a_state_write_is_sound_until_a_snapshot_rots(tmp_path: Path) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12,
        retention_bytes=2 << 16, state_machine="register", snapshot_threshold=100,
        snapshots_reserved=2,
    ) as group:  # fmt: skip
        wait_for(
            lambda: set_registers_and_see_removals(group),
            "each member has removed segments, and so has several snapshots",
        )
        sound = audited(group)
        rotten = group.manifest(group.master())
        assert rotten.retention is not None
        member, newest = rotten.status.self_id, rotten.retention.snapshots[-1].last_included_index
        path = group.store_folder(member) / snapshot_file(newest, SNAPSHOT_DATA)
        with path.open("r+b") as file:
            file.seek(30)
            byte = file.read(1)
            file.seek(30)
            file.write(bytes([byte[0] ^ 1]))

        damaged = audited(group)

    assert sound.verdict is Verdict.SOUND, sound
    assert not sound.first_findings
    assert damaged.verdict is Verdict.DAMAGED, damaged
    found = {(each.check, each.member, each.first_index) for each in damaged.first_findings}
    assert ("bad_snapshot", member, newest) in found
    # The log may continue no other one.
    assert found <= {("bad_snapshot", member, newest), ("no_snapshot", member, 0)}


def test_a_group_that_writes_snapshots_and_removes_its_front_while_it_is_read_is_sound(
    tmp_path: Path,
) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12,
        retention_bytes=2 << 16, state_machine="register", snapshot_threshold=1,
        snapshots_reserved=1,
    ) as group:  # fmt: skip
        wait_for(lambda: set_registers_and_see_removals(group), "each member removes segments")
        # A member keeps its last 100 removals, so the writes are bounded by count: a writer that
        # never waits removes more segments than that on a machine where an audit takes long.
        rounds = threading.Semaphore(0)

        def write() -> None:
            for _ in range(AUDITS * ROUNDS_PER_AUDIT):
                rounds.acquire()
                asyncio.run(set_registers(group, 500))

        summaries = []
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for _ in range(AUDITS):
                    rounds.release(ROUNDS_PER_AUDIT)
                    summaries.append(audited(group))
            finally:
                rounds.release(AUDITS * ROUNDS_PER_AUDIT)
            writing.result(timeout=60)

    for summary in summaries:
        assert summary.verdict is Verdict.SOUND, summary
        assert not summary.first_findings, summary
    assert summaries[-1].agreed_index > summaries[0].agreed_index


def resident_bytes(files: list[Path]) -> int:
    """Return how much of the files the page cache has."""
    found = 0
    for file in files:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            absent = passing_reads.absent_runs(opened.fileno(), 0, size)
            found += size - sum(length for _, length in absent)
    return found


def test_an_audit_leaves_no_log_in_the_page_cache_of_the_members(tmp_path: Path) -> None:
    with NodeGroup(
        tmp_path, segment_size_bytes=1 << 22, index_segment_size_bytes=1 << 16
    ) as group:  # fmt: skip
        asyncio.run(append_mebibytes(group, 32))
        sealed = [
            file
            for member in group.peers
            for file in sorted((group.folder / f"dledger-{member}" / "data").iterdir())[:-1]
        ]
        for file in sealed:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = resident_bytes(sealed)
        summary = audited(group)
        after = resident_bytes(sealed)
        total = sum(file.stat().st_size for file in sealed)

    assert (summary.verdict, summary.findings) == (Verdict.SOUND, 0)
    assert total > 80 << 20
    assert after - before <= 1 << 20, f"{before} before, {after} afterwards, of {total}"


async def append_mebibytes(group: NodeGroup, count: int) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        for _ in range(count):
            await client.append_batch([os.urandom(1 << 16) for _ in range(16)], deadline_s=60)
