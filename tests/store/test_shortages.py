"""A read that fails because the process may open no further files says nothing about the bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing.peer_bytes import NoPeerError, OwnBytes, PeerBytes
from dledger_node.shortages import is_passing
from dledger_node.store.log.damaged_ranges import LogShape, closing
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.contents import flush
from dledger_store_files.shortage import no_more_files

OpenStore = Callable[..., LogStore]
BODIES = [b"%04d" % number * 25 for number in range(100)]


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """An open store, none of whose files are open."""
    opened = open_store()
    opened.append_bodies(BODIES, 2)
    flush(opened)
    opened.distrust()
    for files in (opened._files.data, opened._files.index):
        for file in files.files:
            file._open_files.release(file._holder)
    return opened


READS: list[Callable[[LogStore], object]] = [
    lambda store: store.entry(7),
    lambda store: store.position(7),
    lambda store: store.read_range(0, 50, 1 << 20),
    lambda store: store.stored_range(0, 50, 1 << 20),
    lambda store: store.checked_range(0, 50, 1 << 20, wait=True),
    lambda store: store.range_to_push(0, 50, 1 << 20, wait=True),
]


@pytest.mark.parametrize("read", READS)
def test_a_read_that_can_open_no_file_fails_without_a_report_of_damage(
    store: LogStore, read: Callable[[LogStore], object]
) -> None:
    with no_more_files(), pytest.raises(StoreDamagedError) as failure:
        read(store)

    assert is_passing(failure.value)
    assert store.damage is None
    assert read(store)


def test_damage_that_was_found_before_is_kept(store: LogStore) -> None:
    found = store.damage = StoreDamagedError("rotten", Damage.BAD_ENTRY, 3)
    with no_more_files(), pytest.raises(StoreDamagedError):
        store.entry(7)

    assert store.damage is found


def test_a_search_for_damage_does_not_take_what_it_cannot_open_for_zeros(
    store: LogStore, folder: Path
) -> None:
    """It would then ask the peers for entries that are sound, and write them again."""
    shape = LogShape(folder=folder, segment_size_bytes=4096, index_segment_size_bytes=4096)
    with closing(shape.read(0, 4096)) as files:
        with no_more_files(), pytest.raises(StoreDamagedError) as failure:
            files.data.read(0, 4096)

        assert is_passing(failure.value)
        assert any(files.data.read(0, 4096))


def test_a_member_that_cannot_open_its_own_file_may_give_its_bytes_later(folder: Path) -> None:
    own = {"this member": OwnBytes(folder / disk.DATA_FOLDER)}
    with no_more_files(), pytest.raises(NoPeerError) as failure:
        PeerBytes(own, 0, 4096, 4096).read(0, 100)

    assert failure.value.may_give_later
