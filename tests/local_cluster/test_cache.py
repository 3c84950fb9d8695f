"""The cache: its entries are complete, and missing or damaged ones are built."""

from pathlib import Path

import pytest

from tools.local_cluster import cache, programs
from tools.local_cluster.errors import LocalClusterError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DLEDGER_CACHE", str(tmp_path))
    return tmp_path


class Maker:
    """Fills entries, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "program").write_text("whole")


def test_an_entry_is_built_once() -> None:
    make = Maker()
    first = cache.ensure("kind", "key", make)
    assert cache.ensure("kind", "key", make) == first
    assert (first / "program").read_text() == "whole"
    assert make.calls == 1


def test_different_keys_have_different_entries() -> None:
    make = Maker()
    assert cache.ensure("kind", "a", make) != cache.ensure("kind", "b", make)
    assert make.calls == 2


@pytest.mark.parametrize("damage", ["truncate", "remove", "add", "inventory"])
def test_a_damaged_entry_is_built_again(damage: str) -> None:
    make = Maker()
    entry = cache.ensure("kind", "key", make)
    match damage:
        case "truncate":
            (entry / "program").write_text("who")
        case "remove":
            (entry / "program").unlink()
        case "add":
            (entry / "stray").write_text("x")
        case "inventory":
            (entry / ".inventory.json").write_text("{")
    assert (cache.ensure("kind", "key", make) / "program").read_text() == "whole"
    assert make.calls == 2


def test_a_failed_build_leaves_no_entry(folder: Path) -> None:
    def fail(entry: Path) -> None:
        (entry / "program").write_text("half")
        raise LocalClusterError("no compiler")

    with pytest.raises(LocalClusterError, match="no compiler"):
        cache.ensure("kind", "key", fail)
    assert cache.find("kind", "key") is None
    assert not list((folder / "kind").glob(".building-*"))


def test_different_inputs_have_different_keys(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    assert cache.key(file) == cache.key("content") == cache.key(b"content")
    assert cache.key("ab", "c") != cache.key("a", "bc")
    before = cache.key(file)
    file.write_text("changed")
    assert cache.key(file) != before


def test_the_key_of_the_programs_depends_on_the_toolchain() -> None:
    assert programs.entry_key("go1.26.1") == programs.entry_key("go1.26.1")
    assert programs.entry_key("go1.26.1") != programs.entry_key("go1.26.2")
