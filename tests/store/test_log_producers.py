"""The table of producers of a log: appended, pushed, cut, restarted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_node.store.derived import producers_file
from dledger_node.store.derived.log_producers import SAVE_ENTRIES
from dledger_node.store.derived.producers import Finding, Producers
from dledger_node.store.log.log_store import LogStore
from dledger_store_files.producers import (
    EXPECTED,
    append,
    appended_twice,
    found,
    mark_stable,
)

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]


def test_the_table_knows_where_appends_are(open_store: OpenStore) -> None:
    store = open_store()

    first, second = appended_twice(store)

    assert (first, second) == (3, 10)
    assert (found(store, 3, 6), found(store, 10, 1)) == EXPECTED
    assert [store.entry(index)[1] for index in found(store, 3, 6)] == [
        b"%d of 3" % sequence for sequence in range(1, 7)
    ]
    assert store.entry(13)[0].channel == channel_of(1, 6)


@pytest.mark.parametrize("stable_index", [-1, 3, 9, 12, 14])
@pytest.mark.parametrize("is_saved", [False, True])
def test_the_table_is_the_same_after_a_crash(
    open_store: OpenStore, crashed: Crashed, stable_index: int, is_saved: bool
) -> None:
    store = open_store()
    appended_twice(store)
    if stable_index >= 0:
        mark_stable(store, stable_index)
    if is_saved:
        image = store.producers.image_due(before_index=SAVE_ENTRIES)
        assert (image is None) == (stable_index < 0)
        if image is not None:
            store.producers.save(image)

    again = open_store(crashed(store))

    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED
    assert again.producers.saved_index == (stable_index if is_saved else -1)


def test_an_orderly_stop_saves_the_table(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    appended_twice(store)
    mark_stable(store, 14)
    store.close()

    again = open_store()

    assert again.producers.saved_index == 14
    assert (found(again, 3, 6), found(again, 10, 1)) == EXPECTED


def test_a_small_log_without_producers_keeps_no_file(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 20, term=1)
    mark_stable(store, 19)
    store.close()

    assert not (folder / producers_file.FILE_NAME).exists()


@pytest.mark.parametrize("stable_index", [-1, 5])
def test_appends_that_are_cut_from_the_log_are_forgotten(
    open_store: OpenStore, stable_index: int
) -> None:
    store = open_store()
    appended_twice(store)
    store.producers.table.mark_stable(stable_index)

    store.truncate(11)

    assert found(store, 3, 4) == [4, 5, 6, Finding.NEW]
    assert found(store, 10, 1) == [Finding.NEW]
    append(store, 3, 4, term=2)
    assert found(store, 3, 4) == [4, 5, 6, 11]


def test_the_log_is_read_again_after_a_cut_that_cannot_be_undone(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.producers.table = Producers(undo_max=2)
    appended_twice(store)

    store.truncate(6)

    assert found(store, 3, 3) == [4, 5, Finding.NEW]
    assert found(store, 10, 1) == [Finding.UNKNOWN_PRODUCER]


@pytest.mark.parametrize("held", [0, 4, 12])
def test_a_follower_notes_each_pushed_append_once(
    open_store: OpenStore, memory_path: Path, held: int
) -> None:
    leader, follower = open_store(), open_store(memory_path / "follower")
    appended_twice(leader)

    for previous, last in ((-1, held), (-1, 13), (10, 14)):
        data = b"".join(leader.read_range(previous + 1, last, 1 << 20)[0])
        block = follower.check_block(
            data, previous_index=previous, previous_term=1 if previous >= 0 else -1,
            last_index=last, term=1,
        )  # fmt: skip
        begin = follower.end_index + 1
        if begin <= last:
            follower.append_block(block, first_index=begin, last_index=last)

    assert (found(follower, 3, 6), found(follower, 10, 1)) == EXPECTED


def test_a_producer_that_registered_before_damage_is_unknown(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    first, second = appended_twice(store)
    place = store.position(5).pos
    mark_stable(store, 14)
    store.close()
    (folder / producers_file.FILE_NAME).unlink()
    path = folder / "data" / disk.file_name(place // 4096 * 4096)
    with path.open("r+b") as file:
        file.seek(place % 4096 + 35)  # the sequence in its channel
        file.write(b"\x63")

    again = open_store(margin_bytes=500)

    assert again.producers.table.find(first, 1) is Finding.UNKNOWN_PRODUCER
    assert found(again, second, 1) == [11]


@pytest.mark.parametrize("index", [4, 6])
def test_a_damaged_index_unit_hides_the_producers_that_registered_before_it(
    open_store: OpenStore, folder: Path, index: int
) -> None:
    """Looking for the end of a segment meets these units."""
    store = open_store()
    first, second = appended_twice(store)
    mark_stable(store, 14)
    store.close()
    (folder / producers_file.FILE_NAME).unlink()
    unit = disk.INDEX_UNIT.pack(disk.NORMAL, 1 << 40, 900, index, 1)
    path = folder / "index" / disk.file_name(0)
    with path.open("r+b") as file:
        file.seek(index * disk.INDEX_UNIT_SIZE)
        file.write(unit)

    again = open_store(margin_bytes=500)

    assert again.producers.table.find(first, 1) is Finding.UNKNOWN_PRODUCER, "not NEW"
    assert found(again, second, 1) == [11]
