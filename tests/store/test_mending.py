"""Mending damaged ranges in place: found, fetched from a peer, verified, written; or refused."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.disk import EntryHeader
from dledger_node.healing.mending import CannotMendError, Mender
from dledger_node.healing.peer_bytes import CHUNK_BYTES, Peer
from dledger_node.store.log import damaged_ranges as ranges
from dledger_node.store.log.damaged_ranges import DamagedRange, LogShape, damaged_ranges
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_store_files.contents import bodies_of, flush
from dledger_store_files.damage import flip, poke
from dledger_store_files.folder_peer import FolderPeer
from dledger_store_files.small_log import (
    INDEX_SEGMENT_BYTES,
    SEGMENT_BYTES,
    checkpoint_of,
    data_of,
    shape_of,
)

OpenStore = Callable[..., LogStore]

BODIES = [b"%04d" % number * 25 for number in range(200)]
PER_SEGMENT = 27
"""Entries of 148 bytes per segment."""
COMMITTED_INDEX = 190


class SilentPeer:
    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        raise OSError("does not answer")


@pytest.fixture
def folder_of_a_log(open_store: OpenStore, folder: Path) -> Path:
    """The folder of a store with some segments and a checkpoint; entries of two terms."""
    store = open_store()
    store.append_bodies(BODIES[:60], 2)
    store.append_bodies(BODIES[60:], 3)
    flush(store)
    store.save_checkpoint(COMMITTED_INDEX)
    store.close()
    return folder


@pytest.fixture
def twin(folder_of_a_log: Path, tmp_path: Path) -> Path:
    """The folder of a peer with the same log."""
    return Path(shutil.copytree(folder_of_a_log, tmp_path / "twin"))


def found_in(folder: Path) -> list[DamagedRange]:
    return list(damaged_ranges(shape_of(folder), load_checkpoint(folder)))


def mend(folder: Path, *peers: Peer) -> int:
    """Mend every range that is found; return how many."""
    named = {f"n{number}": peer for number, peer in enumerate(peers)}
    mender = Mender(shape_of(folder), named, create_files=True)
    return sum(
        1 for each in damaged_ranges(shape_of(folder), load_checkpoint(folder))
        if mender.mend(each, checkpoint_of(folder))
    )  # fmt: skip


def segment(folder: Path, number: int) -> Path:
    return folder / disk.DATA_FOLDER / disk.file_name(number * SEGMENT_BYTES)


def flip_at(number: int, at: int) -> Callable[[Path], None]:
    return lambda folder: flip(folder / disk.DATA_FOLDER, number * SEGMENT_BYTES + at)


def zero_a_block(folder: Path) -> None:
    poke(folder / disk.DATA_FOLDER, SEGMENT_BYTES + 512, bytes(1024))


def cut_short(folder: Path) -> None:
    with segment(folder, 2).open("r+b") as file:
        file.truncate(1000)


def cut_to_nothing(folder: Path) -> None:
    segment(folder, 2).write_bytes(b"")


def remove(*numbers: int) -> Callable[[Path], None]:
    def removing(folder: Path) -> None:
        for number in numbers:
            segment(folder, number).unlink()

    return removing


def damage_several(folder: Path) -> None:
    for number in (0, 2, 4):
        flip_at(number, 300)(folder)


DAMAGES = {
    "a flipped byte of a body": flip_at(2, 100),
    "a flipped byte of a channel": flip_at(2, 148 + 35),
    "the channel of a segment's first entry": flip_at(2, 35),
    "the first entry of the log": flip_at(0, 10),
    "the blank at the end of a segment": flip_at(1, PER_SEGMENT * 148 + 1),
    "a zeroed block": zero_a_block,
    "a file that is cut short": cut_short,
    "an empty file": cut_to_nothing,
    "a missing file": remove(3),
    "two missing files": remove(2, 3),
    "the missing first file": remove(0),
    "three ranges": damage_several,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_below_the_committed_index_is_mended_byte_for_byte(
    folder_of_a_log: Path, twin: Path, open_store: OpenStore, damage: Callable[[Path], None]
) -> None:
    damage(folder_of_a_log)

    assert mend(folder_of_a_log, FolderPeer(twin)) == (3 if damage is damage_several else 1)

    assert data_of(folder_of_a_log) == data_of(twin)
    assert found_in(folder_of_a_log) == []
    store = open_store(verify_all=True)
    assert bodies_of(store) == BODIES


def test_only_the_damaged_entries_are_fetched(folder_of_a_log: Path, twin: Path) -> None:
    flip_at(2, 148 + 100)(folder_of_a_log)
    peer = FolderPeer(twin)

    mend(folder_of_a_log, peer)

    assert peer.asked_bytes == 148


def test_a_sound_log_has_no_damaged_range(folder_of_a_log: Path) -> None:
    assert found_in(folder_of_a_log) == []


@pytest.mark.parametrize("at", [COMMITTED_INDEX + 1, COMMITTED_INDEX])
def test_damage_that_reaches_the_committed_index_is_not_mended(
    folder_of_a_log: Path, at: int
) -> None:
    number, place = divmod(at, PER_SEGMENT)
    flip_at(number, place * 148 + 60)(folder_of_a_log)

    assert found_in(folder_of_a_log) == []


@pytest.mark.parametrize("harm", [flip_at(1, 200), lambda folder: segment(folder, 1).unlink()])
def test_a_mended_segment_is_not_younger_for_retention(
    folder_of_a_log: Path, twin: Path, harm: Callable[[Path], None]
) -> None:
    """A missing file gets the time of the next one, whose entries were written later."""
    harm(folder_of_a_log)
    was_missing = not segment(folder_of_a_log, 1).exists()
    for number in {0, 1, 2} - ({1} if was_missing else set()):
        os.utime(segment(folder_of_a_log, number), (1e9 + number, 1e9 + number))

    assert mend(folder_of_a_log, FolderPeer(twin)) == 1

    assert segment(folder_of_a_log, 1).stat().st_mtime == 1e9 + (2 if was_missing else 1)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 148)])
def test_what_the_disk_lacks_of_a_segment_is_not_searched_entry_by_entry(
    folder_of_a_log: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    looked_at, sound_header = list[int](), ranges.sound_header

    def looking(files: LogFiles, pos: int, index: int) -> EntryHeader | None:
        looked_at.append(index)
        return sound_header(files, pos, index)

    monkeypatch.setattr(ranges, "sound_header", looking)
    harm(segment(folder_of_a_log, 1))

    (found,) = found_in(folder_of_a_log)

    assert found.end_index == 2 * PER_SEGMENT
    assert len(looked_at) == 2


def test_without_a_checkpoint_nothing_is_mended(folder_of_a_log: Path) -> None:
    flip_at(2, 100)(folder_of_a_log)
    (folder_of_a_log / "checkpoint").unlink()

    assert found_in(folder_of_a_log) == []


def test_damage_is_found_without_an_index(folder_of_a_log: Path, twin: Path) -> None:
    flip_at(2, 100)(folder_of_a_log)
    shutil.rmtree(folder_of_a_log / disk.INDEX_FOLDER)
    (folder_of_a_log / disk.INDEX_FOLDER).mkdir()

    assert [(found.start.index, found.end_index) for found in found_in(folder_of_a_log)] == [
        (2 * PER_SEGMENT, 2 * PER_SEGMENT + 1)
    ]
    mend(folder_of_a_log, FolderPeer(twin))
    assert data_of(folder_of_a_log) == data_of(twin)


def test_a_body_that_ends_like_the_beginning_of_a_header_stops_no_search(
    open_store: OpenStore, folder: Path
) -> None:
    """A client may append such a body, since answers tell it the position."""
    store, end = open_store(), SEGMENT_BYTES - disk.BLANK_SIZE_MIN
    header = disk.ENTRY_HEADER.pack(disk.NORMAL, 48, 2, 1, end - 32, 0, 0, 0, 0)
    store.append_bodies([bytes(end - 48 - 32) + header[:32], b"sound", b"sound"], 1)
    flush(store)
    store.save_checkpoint(2)
    store.close()
    flip_at(0, 100)(folder)
    for path in (folder / disk.INDEX_FOLDER).iterdir():
        path.unlink()

    assert [(found.start.index, found.end_index) for found in found_in(folder)] == [(0, 1)]


def test_rotten_bytes_of_a_peer_are_taken_from_another(folder_of_a_log: Path, twin: Path) -> None:
    rotten = Path(shutil.copytree(twin, twin.parent / "rotten"))
    flip_at(2, 100)(folder_of_a_log)
    flip_at(2, 120)(rotten)

    assert mend(folder_of_a_log, FolderPeer(rotten), FolderPeer(twin)) == 1

    assert data_of(folder_of_a_log) == data_of(twin)


@pytest.mark.parametrize("peers", ["rotten", "none", "short", "silent"])
def test_nothing_is_written_if_no_peer_has_sound_bytes(
    folder_of_a_log: Path, twin: Path, peers: str
) -> None:
    flip_at(2, 100)(folder_of_a_log)
    before = data_of(folder_of_a_log)
    peer = FolderPeer(twin)
    flip_at(2, 120)(twin)
    if peers == "short":
        peer.end_pos = 2 * SEGMENT_BYTES + 50
        for start in range(2 * SEGMENT_BYTES, 8 * SEGMENT_BYTES, SEGMENT_BYTES):
            (twin / disk.DATA_FOLDER / disk.file_name(start)).write_bytes(bytes(SEGMENT_BYTES))
    given: list[Peer] = {"none": [], "silent": [peer, SilentPeer()]}.get(peers, [peer])

    with pytest.raises(CannotMendError, match="no other member gives sound bytes of entry 54") as e:
        mend(folder_of_a_log, *given)

    assert e.value.may_succeed_later == (peers in ("silent", "short"))
    assert data_of(folder_of_a_log) == before


def test_bytes_of_another_group_are_refused(
    folder_of_a_log: Path, tmp_path: Path, open_store: OpenStore
) -> None:
    """Its entries have the same size, index, term and position, and sound checksums of bodies."""
    other = tmp_path / "other"
    store = open_store(other)
    store.append_bodies([body[::-1] for body in BODIES[:60]], 2)
    store.append_bodies([body[::-1] for body in BODIES[60:]], 3)
    flush(store)
    store.close()
    flip_at(2, 100)(folder_of_a_log)
    before = data_of(folder_of_a_log)

    with pytest.raises(CannotMendError, match="fail the checksums"):
        mend(folder_of_a_log, FolderPeer(other))

    assert data_of(folder_of_a_log) == before


def test_entries_without_checksums_are_not_mended(folder_of_a_log: Path, twin: Path) -> None:
    """Java writes zeros, which mean: not covered."""
    for folder in (folder_of_a_log, twin):
        for number in range(PER_SEGMENT):
            poke(folder / disk.DATA_FOLDER, 2 * SEGMENT_BYTES + 148 * number + 36, bytes(8))
    poke(folder_of_a_log / disk.DATA_FOLDER, 2 * SEGMENT_BYTES + 148, bytes(48))
    before = data_of(folder_of_a_log)

    with pytest.raises(CannotMendError, match="has no checksums"):
        mend(folder_of_a_log, FolderPeer(twin))

    assert data_of(folder_of_a_log) == before


@pytest.mark.parametrize("seed", range(20))
def test_any_disjoint_damage_of_two_members_is_mended_from_each_other(
    folder_of_a_log: Path, twin: Path, seed: int
) -> None:
    """Each entry is damaged on one of them at most, and neither has an undamaged log."""
    sound, chance = data_of(twin), random.Random(seed)
    indexes = chance.sample(range(COMMITTED_INDEX - 1), 12)
    for number, index in enumerate(indexes):
        at, place = divmod(index, PER_SEGMENT)
        hurt = (folder_of_a_log, twin)[number % 2]
        for _ in range(chance.randint(1, 3)):
            flip_at(at, place * 148 + chance.randrange(148))(hurt)

    for hurt, other in ((folder_of_a_log, twin), (twin, folder_of_a_log)):
        mend(hurt, FolderPeer(other))

    assert data_of(folder_of_a_log) == data_of(twin) == sound


def test_a_range_of_many_chunks_is_mended_from_two_peers_that_are_rotten_elsewhere(
    open_store: OpenStore, tmp_path: Path, folder: Path
) -> None:
    size = 8 * CHUNK_BYTES
    store = open_store(segment=size)
    store.append_bodies([bytes([number]) * 40_000 for number in range(150)], 1)
    flush(store)
    store.save_checkpoint(149)
    store.close()
    twins = [Path(shutil.copytree(folder, tmp_path / name)) for name in ("t0", "t1", "sound")]
    for number, twin in enumerate(twins[:2]):
        flip(twin / disk.DATA_FOLDER, size + (2 + 3 * number) * CHUNK_BYTES, segment_bytes=size)
    (folder / disk.DATA_FOLDER / disk.file_name(size)).unlink()
    whole = LogShape(
        folder=folder, segment_size_bytes=size, index_segment_size_bytes=INDEX_SEGMENT_BYTES
    )
    peers: dict[str, Peer] = {twin.name: FolderPeer(twin) for twin in twins[:2]}

    (damaged,) = damaged_ranges(whole, load_checkpoint(folder))
    mended = Mender(whole, peers, create_files=True).mend(damaged, checkpoint_of(folder))

    assert mended.sources == ("t0", "t1")
    assert data_of(folder) == data_of(twins[2])


def test_a_crash_while_a_range_is_written_leaves_damage_that_is_mended_again(
    folder_of_a_log: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(2, 3)(folder_of_a_log)

    def no_sync(fd: int) -> None:
        raise OSError("the power fails")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", no_sync)
        with pytest.raises(CannotMendError, match="the power fails"):
            mend(folder_of_a_log, FolderPeer(twin))
    assert not segment(folder_of_a_log, 2).exists()

    assert mend(folder_of_a_log, FolderPeer(twin)) == 1
    assert data_of(folder_of_a_log) == data_of(twin)
