"""A peer gives entries that it does not know to be committed, if its log is the same up to them."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import NotYetCommittedError
from dledger_node.healing.closed_log import ClosedLog
from dledger_node.healing.mending import CannotMendError, Mender
from dledger_node.healing.peer_bytes import Peer
from dledger_node.store.log.damaged_ranges import (
    beginning,
    closing,
    damaged_ranges,
    headers_after,
)
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.served_segments import stored_bytes
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip
from dledger_store_files.folder_peer import FolderPeer
from dledger_store_files.small_log import SEGMENT_BYTES, checkpoint_of, data_of, shape_of

OpenStore = Callable[..., LogStore]

SIZE = 148
PER_SEGMENT = 27
COMMITTED_INDEX = 90


@pytest.fixture
def own(open_store: OpenStore, folder: Path) -> Path:
    """The folder of the member that is mended."""
    store = open_store()
    store.append_bodies([b"%04d" % number * 25 for number in range(100)], 2)
    flush(store)
    store.save_checkpoint(COMMITTED_INDEX)
    store.close()
    return folder


@pytest.fixture
def twin(own: Path, tmp_path: Path) -> Path:
    """The folder of a member with the same log."""
    return Path(shutil.copytree(own, tmp_path / "twin"))


def place_of(index: int) -> int:
    number, place = divmod(index, PER_SEGMENT)
    return number * SEGMENT_BYTES + place * SIZE


def hurt(folder: Path, index: int, at: int = 100) -> None:
    """Flip a byte of an entry; `at` counts from its beginning."""
    flip(folder / disk.DATA_FOLDER, place_of(index) + at)


def mend(folder: Path, peer: Peer) -> None:
    shape, checkpoint = shape_of(folder), checkpoint_of(folder)
    for each in damaged_ranges(shape, checkpoint):
        Mender(shape, {"n1": peer}, create_files=True).mend(each, checkpoint)
    assert list(damaged_ranges(shape, checkpoint)) == []


def known_after(folder: Path) -> bytes:
    """The headers that a member with one damaged range tells its peers."""
    shape, checkpoint = shape_of(folder), checkpoint_of(folder)
    (damaged,) = damaged_ranges(shape, checkpoint)
    with closing(shape.read(0, beginning(shape, checkpoint)[1])) as files:
        return headers_after(files, damaged, COMMITTED_INDEX)


class ListeningPeer(FolderPeer):
    """Keeps the headers that it is told."""

    def __init__(self, folder: Path, *, end_pos: int = 1 << 40) -> None:
        super().__init__(folder, end_pos=end_pos)
        self.told = list[bytes]()

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        self.told.append(known)
        return super().stored(name, at, size, known)


def test_a_peer_is_told_headers_only_if_it_does_not_know_its_entries_as_committed(
    own: Path, twin: Path
) -> None:
    hurt(own, 40)
    sure, unsure = ListeningPeer(twin), ListeningPeer(twin, end_pos=0)

    headers = known_after(own)
    mend(own, sure)
    hurt(own, 40)
    mend(own, unsure)

    assert set(sure.told) == {b""}
    assert unsure.told[0] == b""
    assert set(unsure.told[1:]) == {headers}


def test_headers_that_cannot_be_read_stop_no_mending_from_a_sure_peer(
    own: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> bytes:
        raise IndexError("the index files end too early")

    monkeypatch.setattr("dledger_node.healing.mending.headers_after", unreadable)
    hurt(own, 40)

    mend(own, FolderPeer(twin))
    assert data_of(own) == data_of(twin)

    hurt(own, 40)
    with pytest.raises(CannotMendError) as refused:
        mend(own, FolderPeer(twin, end_pos=0))
    assert refused.value.may_succeed_later


@pytest.mark.parametrize("known_to_the_peer", [0, 1000, place_of(62)])
@pytest.mark.parametrize("hurt_indexes", [(60,), (60, 61, 62), (26, 27), (0,), range(20, 60)])
def test_a_peer_need_not_know_that_the_entries_are_committed(
    own: Path, twin: Path, known_to_the_peer: int, hurt_indexes: tuple[int, ...]
) -> None:
    for index in hurt_indexes:
        hurt(own, index)

    mend(own, FolderPeer(twin, end_pos=known_to_the_peer))

    assert data_of(own) == data_of(twin)


@pytest.mark.parametrize("index_is", ["missing", "unreadable"])
def test_a_peer_that_is_out_of_service_gives_entries_without_its_index(
    own: Path, twin: Path, index_is: str
) -> None:
    """It refused for good, and the member set its log aside. An opening rebuilds the index."""
    for file in (twin / disk.INDEX_FOLDER).iterdir():
        file.unlink()
        if index_is == "unreadable":
            file.mkdir()
    hurt(own, 40)

    mend(own, ClosedLog(shape_of(twin)))

    assert data_of(own) == data_of(twin)


def test_a_damaged_header_after_the_range_is_no_hindrance(own: Path, twin: Path) -> None:
    hurt(own, 60)
    hurt(own, 61, at=disk.ENTRY_HEADER_SIZE - 1)

    mend(own, FolderPeer(twin, end_pos=0))

    assert data_of(own) == data_of(twin)


@pytest.mark.parametrize("first_index", [0, 40, 60, 61])
def test_a_peer_whose_entries_are_of_another_term_gives_none_of_them(
    own: Path, tmp_path: Path, open_store: OpenStore, first_index: int
) -> None:
    """It has appended them without a majority, and its leader is gone."""
    bodies = [b"%04d" % number * 25 for number in range(100)]
    other = open_store(tmp_path / "other")
    if first_index:
        other.append_bodies(bodies[:first_index], 2)
    other.append_bodies(bodies[first_index:], 3)
    flush(other)
    other.close()
    hurt(own, 60)
    before = data_of(own)
    peer = FolderPeer(tmp_path / "other", end_pos=place_of(min(first_index, 60)))

    with pytest.raises(CannotMendError, match="committed entries end at position") as refused:
        mend(own, peer)

    assert refused.value.may_succeed_later
    assert data_of(own) == before


def test_bytes_behind_the_shared_entry_are_not_given(own: Path, twin: Path) -> None:
    hurt(own, 60)
    known = known_after(own)
    folder, name = twin / disk.DATA_FOLDER, disk.file_name(3 * SEGMENT_BYTES)
    last = place_of(COMMITTED_INDEX) - 3 * SEGMENT_BYTES

    assert stored_bytes(folder, name, 0, last, 0, known) == data_of(twin)[name][:last]
    with pytest.raises(NotYetCommittedError):
        stored_bytes(folder, name, 0, last + 1, 0, known)


@pytest.mark.parametrize(
    "known",
    [
        bytes(disk.ENTRY_HEADER_SIZE),
        b"\xff" * disk.ENTRY_HEADER_SIZE,
        b"\x7f" * disk.ENTRY_HEADER_SIZE * 3,
    ],
    ids=["zeros", "negative", "far away"],
)
def test_headers_of_no_entry_give_nothing(twin: Path, known: bytes) -> None:
    with contextlib.suppress(NotYetCommittedError):
        stored_bytes(twin / disk.DATA_FOLDER, disk.file_name(0), 0, 1, 0, known)
        pytest.fail("nothing is known as committed")
