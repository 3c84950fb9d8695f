"""Each entry of a damaged range may come from another member, whichever has it sound."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.healing.mending import CannotMendError, Mender
from dledger_node.healing.peer_bytes import Peer
from dledger_node.store.log.damaged_ranges import damaged_ranges
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.checkpoint import load_checkpoint, save_checkpoint
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip, poke
from dledger_store_files.folder_peer import FolderPeer
from dledger_store_files.small_log import SEGMENT_BYTES, data_of, shape_of
from dledger_store_files.upkeep import remove_before

OpenStore = Callable[..., LogStore]

SIZE = 148
"""Bytes of an entry."""
PER_SEGMENT = 27
COUNT = 200
COMMITTED_INDEX = 190
FIRST_LEFT = 2 * PER_SEGMENT


def store_with_entries(open_store: OpenStore) -> LogStore:
    store = open_store()
    store.append_bodies([b"%04d" % number * 25 for number in range(COUNT)], 2)
    flush(store)
    store.save_checkpoint(COMMITTED_INDEX)
    return store


def with_twins(folder: Path, tmp_path: Path) -> list[Path]:
    return [folder, *(Path(shutil.copytree(folder, tmp_path / name)) for name in ("n1", "n2"))]


@pytest.fixture
def members(open_store: OpenStore, folder: Path, tmp_path: Path) -> list[Path]:
    """The folders of three members with the same log; the first one is mended."""
    store_with_entries(open_store).close()
    return with_twins(folder, tmp_path)


@pytest.fixture
def members_without_front(open_store: OpenStore, folder: Path, tmp_path: Path) -> list[Path]:
    """As `members`, after retention has removed the entries before FIRST_LEFT."""
    store = store_with_entries(open_store)
    remove_before(store, FIRST_LEFT)
    store.close()
    return with_twins(folder, tmp_path)


def hurt(folder: Path, index: int, at: int = 100) -> None:
    """Flip a byte of an entry; `at` counts from its beginning."""
    number, place = divmod(index, PER_SEGMENT)
    flip(folder / disk.DATA_FOLDER, number * SEGMENT_BYTES + place * SIZE + at)


def remove_segment(folder: Path, number: int) -> None:
    (folder / disk.DATA_FOLDER / disk.file_name(number * SEGMENT_BYTES)).unlink()


def forget_index(folder: Path) -> None:
    shutil.rmtree(folder / disk.INDEX_FOLDER)
    (folder / disk.INDEX_FOLDER).mkdir()


def mend(folder: Path, *peers: Peer) -> tuple[str, ...]:
    """Mend every range that is found; return the peers whose bytes were written."""
    shape = shape_of(folder)
    named = {f"n{number}": peer for number, peer in enumerate(peers, 1)}
    mender = Mender(shape, named, create_files=True)
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None
    sources = set[str]()
    for each in damaged_ranges(shape, checkpoint):
        sources |= set(mender.mend(each, checkpoint).sources)
    assert list(damaged_ranges(shape, checkpoint)) == []
    return tuple(sorted(sources))


def test_neighbouring_entries_come_from_peers_that_each_have_one_of_them(
    members: list[Path],
) -> None:
    own, first, second = members
    sound = data_of(own)
    hurt(own, 60)
    hurt(own, 61)
    hurt(first, 60)
    hurt(second, 61)

    assert mend(own, FolderPeer(first), FolderPeer(second)) == ("n1", "n2")

    assert data_of(own) == sound


def test_two_peers_that_have_rotted_in_every_second_entry_give_a_missing_segment(
    members: list[Path],
) -> None:
    own, first, second = members
    sound = data_of(own)
    remove_segment(own, 2)
    for index in range(2 * PER_SEGMENT, 3 * PER_SEGMENT):
        hurt((first, second)[index % 2], index)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def test_a_wrong_size_at_one_peer_hides_no_later_entry_of_it(members: list[Path]) -> None:
    own, first, second = members
    sound = data_of(own)
    for index in (60, 61, 62):
        hurt(own, index)
    hurt(first, 60, at=4)  # the most significant byte of the size
    hurt(second, 61)
    hurt(second, 62)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def test_an_entry_whose_checksums_rotted_to_zeros_comes_from_another_peer(
    members: list[Path],
) -> None:
    """Zeros mean that no checksum covers an entry, so it proves nothing."""
    own, first, second = members
    sound = data_of(own)
    hurt(own, 60)
    number, place = divmod(60, PER_SEGMENT)
    poke(first / disk.DATA_FOLDER, number * SEGMENT_BYTES + place * SIZE + 36, bytes(8))

    assert mend(own, FolderPeer(first), FolderPeer(second)) == ("n2",)

    assert data_of(own) == sound


def test_the_sound_entries_of_a_segment_are_found_without_an_index(members: list[Path]) -> None:
    """No peer has any of the other entries, so a longer range could not be mended."""
    own, first, second = members
    sound = data_of(own)
    hurt(own, 60)
    hurt(own, 189)
    forget_index(own)
    for peer in (first, second):
        for index in range(61, 70):
            hurt(peer, index)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def test_an_entry_that_is_sound_here_alone_is_kept(members: list[Path]) -> None:
    """Without an index it is not found between two damaged ones, and no peer has it."""
    own, first, second = members
    sound = data_of(own)
    hurt(own, 60)
    hurt(own, 62)
    forget_index(own)
    for peer in (first, second):
        hurt(peer, 61)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def test_a_peer_that_has_not_committed_all_of_them_gives_the_entries_that_it_has(
    members: list[Path],
) -> None:
    own, first, second = members
    sound = data_of(own)
    for index in (60, 61, 62, 63):
        hurt(own, index)
    hurt(second, 60)
    end_pos = 2 * SEGMENT_BYTES + (62 - FIRST_LEFT) * SIZE

    mend(own, FolderPeer(first, end_pos=end_pos), FolderPeer(second))

    assert data_of(own) == sound


def test_a_peer_that_lost_a_segment_gives_the_entries_before_it(members: list[Path]) -> None:
    own, first, second = members
    sound = data_of(own)
    hurt(own, FIRST_LEFT - 1)
    hurt(second, FIRST_LEFT - 1)
    for member in (own, first):
        remove_segment(member, 2)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def forget_link(folder: Path) -> None:
    """Let the checkpoint be one of an earlier release, which keeps no chain checksum."""
    checkpoint = load_checkpoint(folder)
    assert checkpoint is not None
    save_checkpoint(folder, replace(checkpoint, begin_chain_crc=None))


@pytest.mark.parametrize("at", range(disk.ENTRY_HEADER_SIZE))
def test_the_first_entry_that_is_left_is_taken_from_the_only_member_that_has_it_sound(
    members_without_front: list[Path], at: int
) -> None:
    own, first, second = members_without_front
    sound = data_of(own)
    hurt(own, FIRST_LEFT, at=20)
    hurt(own, FIRST_LEFT, at=100)
    hurt(first, FIRST_LEFT, at=at)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("at", range(disk.ENTRY_HEADER_SIZE))
def test_without_a_link_the_first_entry_that_is_left_is_taken_with_the_header_that_two_members_have(
    members_without_front: list[Path], at: int, count: int
) -> None:
    """No checksum covers it any more: its own chain checksum would be believed."""
    own, first, second = members_without_front
    forget_link(own)
    sound = data_of(own)
    for index in range(FIRST_LEFT, FIRST_LEFT + count):
        hurt(own, index)
    hurt(first, FIRST_LEFT, at=at)

    mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == sound


def test_a_first_entry_on_whose_header_no_two_members_agree_is_not_mended(
    members_without_front: list[Path],
) -> None:
    own, first, second = members_without_front
    forget_link(own)
    hurt(own, FIRST_LEFT, at=20)
    hurt(own, FIRST_LEFT, at=100)
    hurt(first, FIRST_LEFT, at=33)
    before = data_of(own)

    with pytest.raises(CannotMendError, match="no two members have the same header of entry 54"):
        mend(own, FolderPeer(first), FolderPeer(second))

    assert data_of(own) == before


def test_an_entry_that_nobody_has_is_named_and_nothing_is_written(members: list[Path]) -> None:
    own, first, second = members
    for member in members:
        hurt(member, 60)
    hurt(own, 61)
    before = data_of(own)

    with pytest.raises(CannotMendError, match="no other member gives sound bytes") as refused:
        mend(own, FolderPeer(first), FolderPeer(second))

    assert not refused.value.may_succeed_later
    assert data_of(own) == before


@pytest.mark.parametrize("request_number", range(1, 80))
def test_a_peer_that_rots_at_any_request_is_never_believed(
    members: list[Path], request_number: int
) -> None:
    """Nothing is kept in memory, so bytes that were verified are fetched again to be written."""
    own, first, second = members
    sound = data_of(own)
    remove_segment(own, 2)
    requests = []

    def rot_at_this_request() -> None:
        requests.append(1)
        if len(requests) == request_number:
            hurt(first, 60)

    peers: dict[str, Peer] = {
        "n1": FolderPeer(first, rot_at_this_request), "n2": FolderPeer(second)
    }  # fmt: skip
    checkpoint = load_checkpoint(own)
    assert checkpoint is not None
    (damaged,) = damaged_ranges(shape_of(own), checkpoint)
    mender = Mender(shape_of(own), peers, create_files=True, chunks_kept=0)
    try:
        mender.mend(damaged, checkpoint)
    except CannotMendError as error:
        refused: CannotMendError | None = error
    else:
        refused = None

    if refused is None:
        assert data_of(own) == sound
    else:
        assert refused.may_succeed_later
        mend(own, FolderPeer(first), FolderPeer(second))
        assert data_of(own) == sound


@pytest.mark.parametrize("seed", range(60))
def test_a_log_whose_every_entry_is_sound_on_some_member_becomes_whole(
    members: list[Path], seed: int
) -> None:
    """Up to nine of ten entries are damaged on each member; some have lost their index, too."""
    sound, chance = data_of(members[0]), random.Random(seed)
    spared = {index: chance.randrange(3) for index in range(COMMITTED_INDEX)}
    share = chance.choice((0.02, 0.2, 0.9))
    for number, member in enumerate(members):
        for index, spared_member in spared.items():
            if spared_member != number and chance.random() < share:
                hurt(member, index, at=chance.randrange(SIZE))
        if share < 0.5 and chance.random() < 0.3:
            forget_index(member)

    for _ in range(2):  # a member may need what another one has mended
        for own in members:
            mend(own, *(FolderPeer(other) for other in members if other is not own))

    assert [data_of(member) for member in members] == [sound] * 3
