"""`dledger group local --seed`: a group that begins with the log of an archive."""

import shutil
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.local.errors import LocalGroupError
from dledger_client.local.folder import SHAPE_FILE, GroupShape
from dledger_client.local.group import LocalGroup
from dledger_client.local.seed import copy_seed, read_seed
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.protocol import register
from dledger_logs import damage
from dledger_logs.read import read_log
from dledger_logs.write import Entry, Shape, write_log
from tools.groups.ports import free_ports

SHAPE = Shape(segment_bytes=8192, index_segment_bytes=3200)
VALUES = [(number * 7 % 20, number) for number in range(600)]


def archive_of(tmp_path: Path, entries: list[Entry], decoder: str) -> Path:
    log = write_log(tmp_path / "source", entries, SHAPE)
    archive = compacted(copies_of({"n0": log}), tmp_path / "archive", decoder)
    assert archive is not None
    assert archive.info.dead_entries > 20
    return archive.path


def registers_archive(tmp_path: Path) -> Path:
    entries = [Entry(term=1, body=b"", magic=disk.NOOP)]
    entries += [Entry(term=2, body=register.SET.pack(key, value)) for key, value in VALUES]
    return archive_of(tmp_path, entries, "register")


@pytest.mark.local
async def test_a_seeded_group_has_the_same_registers_and_keeps_them(tmp_path: Path) -> None:
    archive = registers_archive(tmp_path)
    expected = dict(VALUES) | {100: 1}
    shape, ports = GroupShape(group="local", members=3), free_ports()
    port = next(ports)

    for seed in (archive, None):
        group = LocalGroup(
            shape, tmp_path / "data", first_port=port, state_machine="register", seed=seed
        )
        async with group, DLedgerClient(group.servers, group.name) as client:
            await client.set_register(100, 1)
            found = {key: await client.read_register(key) for key in expected}
        assert found == expected
        shutil.rmtree(archive, ignore_errors=True)


async def test_a_group_that_exists_is_not_seeded(tmp_path: Path) -> None:
    archive = registers_archive(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / SHAPE_FILE).write_bytes(GroupShape(group="local", members=1).to_json())
    group = LocalGroup(GroupShape(group="local", members=1), data, first_port=9, seed=archive)

    with pytest.raises(LocalGroupError, match="contains a group already"):
        await group.__aenter__()

    assert sorted(path.name for path in data.iterdir()) == [SHAPE_FILE, "lock"]


def test_a_damaged_archive_seeds_nothing(tmp_path: Path) -> None:
    archive = registers_archive(tmp_path)
    info = read_seed(archive)
    damage.flip_header(read_log(archive / info.folder), 50, "term", 0)
    (tmp_path / "data").mkdir()

    with pytest.raises(LocalGroupError, match="is damaged"):
        copy_seed(archive, info, tmp_path / "data", ["n0"])


def test_a_seed_does_not_take_a_wrong_term_or_checkpoint(tmp_path: Path) -> None:
    archive = registers_archive(tmp_path)
    info = read_seed(archive)
    expected = {name: (archive / info.folder / name).read_bytes() for name in info.small_files()}
    for name in expected:
        (archive / info.folder / name).write_bytes(b"committedIndex=1\ncurrTerm=1\n")
    (tmp_path / "data").mkdir()

    copy_seed(archive, info, tmp_path / "data", ["n0"])

    folder = tmp_path / "data" / "dledger-n0"
    assert {name: (folder / name).read_bytes() for name in expected} == expected


def test_a_log_that_names_other_members_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, key_history(400, 1), "kv")
    (tmp_path / "data").mkdir()

    with pytest.raises(LocalGroupError, match="names the voters n0, n1, n2"):
        copy_seed(archive, read_seed(archive), tmp_path / "data", ["n0"])

    assert list((tmp_path / "data").iterdir()) == []


def test_a_state_does_not_begin_without_the_first_entries(tmp_path: Path) -> None:
    entries = [Entry(term=2, body=register.SET.pack(key, value)) for key, value in VALUES]
    log = damage.remove_front(write_log(tmp_path / "source", entries, SHAPE), 1)
    archive = compacted(copies_of({"n0": log}), tmp_path / "archive", "register")
    assert archive is not None
    (tmp_path / "data").mkdir()

    said = f"begins with entry {log.first_index}, .* the state machine register needs all of them"
    with pytest.raises(LocalGroupError, match=said):
        copy_seed(archive.path, archive.info, tmp_path / "data", ["n0"], "register")
    copy_seed(archive.path, archive.info, tmp_path / "data", ["n0"])


def test_a_folder_without_an_archive_is_no_seed(tmp_path: Path) -> None:
    with pytest.raises(LocalGroupError, match="is no archive"):
        read_seed(tmp_path)
