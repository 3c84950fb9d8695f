"""Stores that Java DLedger wrote can be opened, read and written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state
from dledger_store_files.archives import extract

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
ARCHIVES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())
MEMBERS = [
    pytest.param(archive, member, id=f"{archive['archive']}-{member}")
    for archive in ARCHIVES
    for member in archive["nodes"]
]
SIZES = {"segment_size_bytes": 8192, "index_segment_size_bytes": 3200}


@pytest.fixture
def unpacked(memory_path: Path) -> Callable[[dict[str, Any], str], Path]:
    """Unpack an archive and return one member's folder."""

    def unpack(archive: dict[str, Any], member: str) -> Path:
        extract(GOLDEN / archive["archive"], memory_path)
        return memory_path / archive["archive"].removesuffix(".tar.xz") / f"dledger-{member}"

    return unpack


def body(index: int, length: int) -> bytes:
    return bytes((index * 31 + j * 7) & 255 for j in range(length))


@pytest.mark.parametrize(("archive", "member"), MEMBERS)
def test_a_java_store_opens_with_the_same_entries(
    unpacked: Callable[..., Path], archive: dict[str, Any], member: str
) -> None:
    store = LogStore.open(unpacked(archive, member), **SIZES)
    expected = archive["nodes"][member]

    assert (store.begin_index, store.end_index, store.end_term) == (0, 299, 2)
    assert store.committed_index == (-1 if expected["checkpoint_committed_index"] is None else 299)
    for index, pos, term, length, magic in archive["entries"]:
        header, found = store.entry(index)
        assert header == (magic, 48 + length, index, term, pos, 0, 0, 0, length)
        assert found == body(index, length)
        assert store.position(index) == (magic, pos, 48 + length, index, term)
    assert store.recovery.cut_bytes == 0
    assert store.recovery.rebuilt_units == 0
    store.close()


@pytest.mark.parametrize(("archive", "member"), MEMBERS)
def test_term_and_vote_of_a_java_member_are_read(
    unpacked: Callable[..., Path], archive: dict[str, Any], member: str
) -> None:
    state = load_hard_state(unpacked(archive, member), ledger_end_term=2)
    expected = archive["nodes"][member]

    assert (state.term, state.vote_for) == (expected["currterm"], expected["vote"] or None)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive["archive"])
def test_opening_a_java_store_leaves_its_files_unchanged(
    unpacked: Callable[..., Path], archive: dict[str, Any]
) -> None:
    folder = unpacked(archive, "n0")
    paths = [*(folder / "data").iterdir(), *(folder / "index").iterdir()]
    before = {path: path.read_bytes() for path in paths}
    LogStore.open(folder, **SIZES).close()

    assert {path: path.read_bytes() for path in paths} == before


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive["archive"])
def test_new_entries_after_java_entries_have_checksums(
    unpacked: Callable[..., Path], archive: dict[str, Any]
) -> None:
    folder = unpacked(archive, "n0")
    store = LogStore.open(folder, **SIZES)
    store.append_bodies([b"ours"] * 200, term=3)
    store.close()

    again = LogStore.open(folder, **SIZES)

    assert again.term_runs()[-1] == (300, 3)
    header, found = again.entry(300)
    assert found == b"ours"
    assert header.chain_crc == disk.chain_crc_of(header, 0) != 0
    assert again.entry(299)[1] == body(299, archive["entries"][299][3])
    again.close()


def test_opening_a_java_store_allocates_the_holes_in_its_files(
    unpacked: Callable[..., Path],
) -> None:
    """Without allocation, a full disk would fail a write to a hole."""
    folder = unpacked(ARCHIVES[0], "n0")
    last = max((folder / "data").iterdir())
    raw = last.read_bytes()
    with last.open("wb") as file:
        file.write(raw.rstrip(b"\0"))
        file.truncate(len(raw))
    assert last.stat().st_blocks * 512 < len(raw)

    LogStore.open(folder, **SIZES).close()

    assert last.stat().st_blocks * 512 >= len(raw)
    assert last.read_bytes() == raw
