"""The file that says which group a folder belongs to."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from dledger_formats.settings import NodeSettings
from dledger_node.errors import ForeignFolderError, StoreError, StoreFullError
from dledger_node.main import open_store
from dledger_node.store.small_files import ballast, whole_file
from dledger_node.store.small_files.group_file import (
    FILE_NAME,
    FolderOwner,
    check_owner,
    claim,
    load_owner,
    save_owner,
)

ID = "0b6f9ba2-9e11-4c39-8f4c-3d2f4b1d6d3e"


def settings_of(folder: Path, group: str = "g", identity: str = "") -> NodeSettings:
    return NodeSettings(
        group=group, self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder),
        segment_size_bytes=4096, index_segment_size_bytes=3200, group_identity=identity,
    )  # fmt: skip


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize("identity", ["", ID])
def test_an_owner_is_read_as_it_was_written(tmp_path: Path, identity: str, adopted: bool) -> None:
    owner = FolderOwner(group="g", identity=identity, adopted=adopted)

    save_owner(tmp_path, owner)

    assert load_owner(tmp_path) == owner


def test_a_folder_without_the_file_has_no_owner(tmp_path: Path) -> None:
    assert load_owner(tmp_path) is None
    check_owner(tmp_path, "g", ID)


def test_an_identity_is_recorded_once_and_then_kept(tmp_path: Path) -> None:
    assert claim(tmp_path, "g", "").owner.identity == ""
    assert claim(tmp_path, "g", ID).owner.identity == ID
    assert claim(tmp_path, "g", "").owner.identity == ID
    with pytest.raises(ForeignFolderError, match=ID):
        claim(tmp_path, "g", "another")
    assert load_owner(tmp_path) == FolderOwner(group="g", identity=ID)


def test_a_folder_of_a_group_of_another_name_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, "g", ID)

    with pytest.raises(ForeignFolderError, match="belongs to the group g, and this member to h"):
        check_owner(tmp_path, "h", ID)


def test_every_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    claim(tmp_path, "g", ID)
    path = tmp_path / FILE_NAME
    sound = path.read_bytes()
    owner = load_owner(tmp_path)
    for at in range(len(sound)):
        for bit in range(8):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << bit]) + sound[at + 1 :])
            with contextlib.suppress(StoreError):
                assert load_owner(tmp_path) == owner


def test_a_crash_while_the_file_is_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, "g", "")

    def crash(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(whole_file.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        claim(tmp_path, "g", ID)

    assert load_owner(tmp_path) == FolderOwner(group="g")


def test_the_ballast_makes_room_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ballast.create(tmp_path)
    real, failures = whole_file.os.replace, [OSError(28, "No space left on device")]

    def replace(*names: object) -> None:
        if failures:
            raise failures.pop()
        real(*names)  # type: ignore[arg-type]

    monkeypatch.setattr(whole_file.os, "replace", replace)
    claim(tmp_path, "g", ID)

    assert load_owner(tmp_path) == FolderOwner(group="g", identity=ID)


def test_a_member_records_its_group_before_its_first_promise(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, identity=ID)
    recorded: list[FolderOwner | None] = []
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path / "dledger-n0"
        patch.setattr(
            "dledger_node.main.begin_hard_state",
            lambda *_: recorded.append(load_owner(folder)) or (_ for _ in ()).throw(StoreError),
        )
        with pytest.raises(StoreError):
            open_store(settings)

    assert recorded == [FolderOwner(group="g", identity=ID)]


def test_a_foreign_folder_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    open_store(settings_of(tmp_path, identity=ID))[0].close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    for other in (settings_of(tmp_path, "h", ID), settings_of(tmp_path, "g", "another")):
        with pytest.raises(ForeignFolderError):
            open_store(other)

    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_full_volume_is_told_from_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ballast, "write_properties", full)

    with pytest.raises(StoreFullError, match="No space left"):
        save_owner(tmp_path, FolderOwner(group="g"))
