"""A unit of the index that rots away from the borders of segments, which no opening reads."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.log.disk import INDEX_UNIT_SIZE
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.segment import Segment
from dledger_store_files.contents import flush
from dledger_store_files.damage import poke

OpenStore = Callable[..., LogStore]

INDEX_BYTES = 320
SEGMENT_BYTES = 4096
ENTRIES = 200


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """An open store of eight segments, all committed."""
    store = open_store()
    store.append_bodies([b"%04d" % number * 25 for number in range(ENTRIES)], 2)
    flush(store)
    store.save_checkpoint(ENTRIES - 1)
    return store


def unit_bytes(store: LogStore, index: int) -> bytes:
    return store._files.units(index, index)


def write_unit(folder: Path, index: int, unit: bytes) -> None:
    poke(folder / disk.INDEX_FOLDER, index * INDEX_UNIT_SIZE, unit, segment_bytes=INDEX_BYTES)


def last_indexes(store: LogStore) -> list[int]:
    """Return the last entry of each sealed segment, as the first look after an opening finds it."""
    for file in store._files.data.files:
        file.first_index = None
    return [segment.last_index for segment in store.front.sealed_segments()]


def test_no_rotten_unit_makes_a_read_take_much_of_the_log(
    store: LogStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a log of 100 GiB would not fit into the memory."""
    sizes, read = list[int](), Segment.read

    def recording(file: Segment, at: int, size: int) -> bytes:
        sizes.append(size if file.size == SEGMENT_BYTES else 0)
        return read(file, at, size)

    monkeypatch.setattr(Segment, "read", recording)
    for index in range(1, ENTRIES):
        sound = unit_bytes(store, index)
        write_unit(folder, index, bytes(INDEX_UNIT_SIZE))
        sizes.clear()
        with contextlib.suppress(StoreDamagedError):
            store.read_range(0, ENTRIES - 1, 1000)
        write_unit(folder, index, sound)
        assert sum(sizes) < SEGMENT_BYTES


@pytest.mark.parametrize("shift", [None, 1, -1], ids=["zeros", "the next unit", "the unit before"])
def test_no_rotten_unit_makes_a_segment_end_where_it_does_not(
    store: LogStore, folder: Path, shift: int | None
) -> None:
    right, found = last_indexes(store), set[Damage]()
    for index in range(1, ENTRIES - 1):
        sound = unit_bytes(store, index)
        rotten = bytes(INDEX_UNIT_SIZE) if shift is None else unit_bytes(store, index + shift)
        write_unit(folder, index, rotten)
        try:
            assert last_indexes(store) == right
        except StoreDamagedError as error:
            found.add(error.damage)
        write_unit(folder, index, sound)

    assert found == {Damage.WRONG_INDEX}
    assert last_indexes(store) == right


@pytest.mark.parametrize("mend_first", [True, False])
def test_a_log_never_begins_in_the_middle_of_a_segment(store: LogStore, mend_first: bool) -> None:
    middle = last_indexes(store)[2] + 5

    with pytest.raises(StoreDamagedError) as caught:
        store.front.save_begin(middle, mend_first=mend_first)

    assert caught.value.damage is Damage.WRONG_INDEX
    assert store.begin_index == 0
    assert store.checkpoints.last is not None
    assert store.checkpoints.last.begin_index == 0


def test_an_opening_that_verifies_everything_mends_the_unit(
    store: LogStore, folder: Path, open_store: OpenStore
) -> None:
    right = last_indexes(store)
    store.close()
    write_unit(folder, ENTRIES // 2, bytes(INDEX_UNIT_SIZE))
    again = open_store(margin_bytes=SEGMENT_BYTES)
    with pytest.raises(StoreDamagedError):
        again.front.sealed_segments()
    again.close()

    assert last_indexes(open_store(verify_all=True)) == right


def test_a_list_of_the_files_never_tells_a_wrong_first_entry(store: LogStore, folder: Path) -> None:
    for file in store._files.data.files:
        file.first_index = None
    write_unit(folder, ENTRIES // 2, bytes(INDEX_UNIT_SIZE))

    with pytest.raises(StoreDamagedError) as caught:
        store.segments.data(ENTRIES - 1)

    assert caught.value.damage is Damage.WRONG_INDEX
    assert caught.value.index is not None


@pytest.mark.parametrize(
    "look",
    [
        last_indexes,
        lambda store: store.segments.data(ENTRIES - 1),
        lambda store: store.segments.readable_bytes("data", disk.file_name(0), ENTRIES - 1),
        lambda store: store.segments.stored(disk.file_name(0), 0, 10, ENTRIES - 1),
    ],
    ids=["retention", "list", "one file", "stored bytes"],
)
def test_an_index_that_the_disk_cannot_read_is_told_as_such_with_a_place(
    store: LogStore, look: Callable[[LogStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a place, the data files would be searched for the damage, in vain."""
    read = Segment.read

    def read_data(file: Segment, at: int, size: int) -> bytes:
        if file.path.parent.name == disk.INDEX_FOLDER:
            raise StoreDamagedError("Input/output error", Damage.UNREADABLE)
        return read(file, at, size)

    monkeypatch.setattr(Segment, "read", read_data)
    with pytest.raises(StoreDamagedError) as caught:
        look(store)

    assert (caught.value.damage, caught.value.index) == (Damage.WRONG_INDEX, 0)
