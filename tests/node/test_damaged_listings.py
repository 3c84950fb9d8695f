"""A member that is out of service because its log is damaged shows its files to auditors."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from dledger_audit.audit import AuditResult, audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.report import summarize
from dledger_client.client import DLedgerClient
from dledger_formats.audit import AuditSummary, Verdict
from dledger_formats.http.status import StorageState
from dledger_formats.log import disk
from dledger_scan.local_audit import RemotePasses
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group
SEGMENT_BYTES = 1 << 16
COUNT = 300


async def append(group: NodeGroup) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch([bytes(1000)] * COUNT, deadline_s=30)


def hurt_follower(group: NodeGroup, name: str = "") -> str:
    """Damage a stopped follower: one bit of its first segment, or remove the named file."""
    asyncio.run(append(group))
    hurt = next(member for member in group.running() if member != group.master())
    group.wait_for_status(hurt, lambda view: view.committed_index >= COUNT, "knows the commit")
    group.stop(hurt)
    folder = group.store_folder(hurt)
    if name:
        (folder / name).unlink()
    else:
        flip(folder / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)
    group.start(hurt)
    group.wait_for_status(
        hurt,
        lambda view: view.storage is StorageState.DAMAGED and "stay out" in view.reason,
        "is out",
    )
    return hurt


def audited(group: NodeGroup) -> AuditSummary:
    urls = {each: f"http://127.0.0.1:{group.http_ports[each]}" for each in group.peers}
    captured = capture("g", urls)
    with closing(RemotePasses(urls)) as passes:
        result: AuditResult = audit(passes, captured, lambda: ask_again(captured))
        return summarize(captured, result)


def group_that_heals_nothing(folder: Path) -> NodeGroup:
    return NodeGroup(
        folder,
        on_damage="stay-out",
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=1 << 12,
    )


def test_an_audit_names_the_damage_of_a_member_that_is_out_of_service(tmp_path: Path) -> None:
    with group_that_heals_nothing(tmp_path) as group:
        hurt = hurt_follower(group)

        listed = group.manifest(hurt)
        summary = audited(group)

        assert group.manifest(hurt).life == listed.life
        assert group.status(hurt).committed_index == -1, "its status has nothing committed"
    found = {(each.check, each.member, each.segment) for each in summary.first_findings}
    assert found == {("not_counted", hurt, ""), ("bad_body_crc", hurt, "0" * 20)}
    assert summary.verdict is Verdict.DAMAGED
    first = next(each for each in summary.first_findings if each.check == "bad_body_crc")
    assert first.first_index == first.last_index


def test_an_audit_names_a_file_that_is_no_segment_and_the_member_goes_on(tmp_path: Path) -> None:
    with NodeGroup(tmp_path) as group:
        asyncio.run(append(group))
        odd = group.running()[0]
        file = group.store_folder(odd) / disk.DATA_FOLDER / "notes.txt"
        file.write_text("not a segment")

        summary = audited(group)
        file.unlink()

        assert {(each.check, each.member) for each in summary.first_findings} == {
            ("foreign_file", odd)
        }
        assert summary.verdict is Verdict.INCOMPLETE
        assert audited(group).verdict is Verdict.SOUND
        asyncio.run(append(group))


def test_what_is_listed_is_what_lies_on_the_disk_and_changes_with_it(tmp_path: Path) -> None:
    with group_that_heals_nothing(tmp_path) as group:
        hurt = hurt_follower(group)
        folder = group.store_folder(hurt)
        before = group.manifest(hurt)
        other = group.manifest(group.master())

        assert [(each.name, each.first_index) for each in before.data[:-1]] == [
            (each.name, each.first_index) for each in other.data[: len(before.data) - 1]
        ]
        name = before.data[1].name
        code, body = group.get(hurt, f"/segments/data/{name}", {"Range": "bytes=0-99"})
        assert (code, body) == (206, (folder / disk.DATA_FOLDER / name).read_bytes()[:100])
        for kind, files in (("data", before.data), ("index", before.index)):
            for each in files:
                code, body = group.get(hurt, f"/segments/{kind}/{each.name}")
                assert (code, len(body)) == (200, each.readable_bytes)
        code, body = group.get(hurt, "/files/checkpoint")
        assert (code, body) == (200, (folder / "checkpoint").read_bytes())
        assert group.get(hurt, f"/segments/data/{9:020}")[0] == 404

        with (folder / disk.DATA_FOLDER / name).open("r+b") as file:
            file.write(b"x")
        assert group.manifest(hurt).life != before.life


@pytest.mark.parametrize("name", ["checkpoint", f"{disk.INDEX_FOLDER}/{0:020}"])
def test_a_missing_file_is_no_obstacle_to_the_rest_of_an_audit(tmp_path: Path, name: str) -> None:
    with group_that_heals_nothing(tmp_path) as group:
        asyncio.run(append(group))
        hurt = next(member for member in group.running() if member != group.master())
        group.stop(hurt)
        flip(group.store_folder(hurt) / disk.DATA_FOLDER, 5000, segment_bytes=SEGMENT_BYTES)
        (group.store_folder(hurt) / name).unlink()
        group.start(hurt)
        group.wait_for_status(
            hurt, lambda view: view.storage is StorageState.DAMAGED, "is out of service"
        )

        checks = {each.check for each in audited(group).first_findings if each.member == hurt}

    assert "not_counted" in checks
    assert "member_unreachable" not in checks
