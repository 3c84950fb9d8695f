"""A folder that a later release has written stops the member before anything is changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.http.status import StorageState
from dledger_formats.log import properties
from dledger_formats.settings import NodeSettings
from dledger_node.errors import LaterFormatError, StoreDamagedError
from dledger_node.main import open_store
from dledger_node.store.small_files.group_file import claim
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_node.store_command.command import ExitCode
from dledger_node.store_command.command import main as store_command
from dledger_node.volume.health import state_of


def settings_of(folder: Path) -> NodeSettings:
    return NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir=str(folder),
        segment_size_bytes=4096, index_segment_size_bytes=3200,
    )  # fmt: skip


@pytest.fixture
def torn_store(tmp_path: Path) -> Path:
    """A folder with two entries and the torn beginning of a third, which recovery would cut."""
    store, _, _ = open_store(settings_of(tmp_path))
    store.append_bodies([b"one", b"two"], 1)
    store.flushed(store.flush_target())
    store.save_checkpoint(1)
    store.close()
    folder = tmp_path / "dledger-n0"
    segment = next(iter((folder / "data").iterdir()))
    with segment.open("r+b") as file:
        file.seek(2 * 51)
        file.write(b"\1" * 20)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def with_key(name: str, key: str, value: object) -> Callable[[Path], None]:
    """Return a function that adds a key to a small file, under the right checksum."""

    def add(folder: Path) -> None:
        path = folder / name
        values = properties.parse(path.read_bytes()) if path.exists() else {}
        path.write_bytes(properties.encode({**values, key: value}))

    return add


LATER = [
    (with_key("group", "format", 2), "format 2; this release reads format 1"),
    (with_key("group", "owner", "x"), "does not know its key owner"),
    (with_key("currterm", "lease", 7), "does not know its key lease"),
    (with_key("checkpoint", "appliedIndex", 1), "does not know its key appliedIndex"),
]


@pytest.mark.parametrize(("write", "reason"), LATER)
def test_a_member_with_a_folder_of_a_later_release_changes_nothing(
    torn_store: Path, write: Callable[[Path], None], reason: str
) -> None:
    (torn_store / "currterm").write_bytes(properties.encode({"voteLeader": "", "currTerm": 1}))
    write(torn_store)
    before = contents(torn_store)

    with pytest.raises(LaterFormatError, match=reason) as refused:
        open_store(settings_of(torn_store.parent))

    assert contents(torn_store) == before
    assert "Run the later release on this folder" in str(refused.value)
    assert state_of(refused.value) is StorageState.SOUND


@pytest.mark.parametrize("command", [["verify"], ["dump"], ["repair-tail", "--yes"]])
def test_no_command_takes_a_folder_of_a_later_release(
    torn_store: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with_key("group", "format", 2)(torn_store)
    before = contents(torn_store)

    assert store_command([command[0], str(torn_store), *command[1:]]) == ExitCode.FAILED

    assert contents(torn_store) == before
    assert "format 2" in capsys.readouterr().err


def test_format_1_is_this_releases_own(tmp_path: Path) -> None:
    claim(tmp_path, "g", "")
    with_key("group", "format", 1)(tmp_path)

    assert claim(tmp_path, "g", "").owner.group == "g"


def test_an_unknown_key_without_a_checksum_is_damage(tmp_path: Path) -> None:
    """Java writes no checksum, and no such key: a flipped bit made it."""
    (tmp_path / "currterm").write_text("voteLeader=\ncurrTerl=4\n")

    with pytest.raises(StoreDamagedError):
        load_hard_state(tmp_path)
