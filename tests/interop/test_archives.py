"""Compacted archives as stores: Java serves one, and the folder of a member that began with one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from dledger_audit.compaction.archive import Archive
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.settings import GroupState, NodeSettings
from dledger_logs.read import read_log
from dledger_logs.write import Entry, Shape, write_log
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_node.store_command.seed import seed
from tools.groups.java_group import JavaGroup

JAVA_SIZES = {"mappedFileSizeForEntryData": 8192, "mappedFileSizeForEntryIndex": 3200}
SHAPE = Shape(segment_bytes=8192, index_segment_bytes=3200)
TIMING = Timing(deadline_s=90.0, request_timeout_s=10.0)


def archive_of(tmp_path: Path, entries: list[Entry], decoder: str) -> Archive:
    log = write_log(tmp_path / "source", entries, SHAPE)
    archive = compacted(copies_of({"n0": log}), tmp_path / "archive", decoder)
    assert archive is not None
    assert archive.info.dead_entries > 20
    return archive


def bodies_in(folder: Path) -> dict[int, tuple[int, bytes]]:
    log = read_log(folder)
    entries = {place.index: log.entry_bytes(place.index) for place in log.places}
    return {index: (disk.unpack_header(raw, 0).term, raw[48:]) for index, raw in entries.items()}


def without_memberships(entries: list[Entry]) -> list[Entry]:
    """Leave out memberships: they would name members that this group does not have."""
    return [entry for entry in entries if entry.magic == disk.NORMAL or not entry.body]


@pytest.mark.interop
async def test_java_0_4_serves_an_archive(class_path_0_4_0: str, tmp_path: Path) -> None:
    archive = archive_of(tmp_path, without_memberships(key_history(400, 1)), "kv")
    written = bodies_in(archive.log)
    shutil.copytree(archive.log, tmp_path / "java" / "dledger-n0")

    with JavaGroup(tmp_path / "java", class_path_0_4_0, members=1, **JAVA_SIZES) as group:
        async with DLedgerClient(servers=group.servers, group="g", timing=TIMING) as client:
            served = {each.index: (each.term, each.body) async for each in client.get_range(0)}

    assert {index: served[index] for index in written} == written


@pytest.mark.interop
async def test_java_0_4_serves_the_folder_of_a_seeded_member(
    class_path_0_4_0: str, tmp_path: Path
) -> None:
    archive = archive_of(tmp_path, without_memberships(key_history(400, 1)), "kv")
    written = bodies_in(archive.log)
    settings = NodeSettings(
        group=archive.info.group,
        self_id="n0",
        peers={"n0": "127.0.0.1:1"},
        initial_group_state=GroupState.NEW,
        store_base_dir=str(tmp_path / "java"),
        segment_size_bytes=SHAPE.segment_bytes,
        index_segment_size_bytes=SHAPE.index_segment_bytes,
    )
    group_name = archive.info.group
    said = await asyncio.to_thread(
        seed, settings, archive.path, source_group=group_name, copy_sha256=""
    )
    assert "begins with entries" in said
    assert load_hard_state(tmp_path / "java" / "dledger-n0", 0).seed is not None

    with JavaGroup(tmp_path / "java", class_path_0_4_0, members=1, **JAVA_SIZES) as group:
        async with DLedgerClient(servers=group.servers, group="g", timing=TIMING) as client:
            served = {each.index: (each.term, each.body) async for each in client.get_range(0)}

    assert {index: served[index] for index in written} == written
