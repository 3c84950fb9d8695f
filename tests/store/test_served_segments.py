"""The lists of segments: right after every change of the log, and cheap for a long one."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.segment_list import SegmentList
from dledger_store_files.contents import flush
from dledger_store_files.small_log import SEGMENT_BYTES
from dledger_store_files.upkeep import commit, remove_before, remove_front

OpenStore = Callable[..., LogStore]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(120)]


def first_entries(store: LogStore) -> list[int]:
    """Return the first entry of each data file, by a walk over the positions."""
    positions = {store.position(index).pos: index for index in range(len(BODIES))
                 if store.begin_index <= index <= store.end_index}  # fmt: skip
    return [positions[file.start] for file in store._files.data.files if file.start in positions]


def listed(store: LogStore) -> list[int]:
    """Return the first entry of each listed data file, without those that are not readable."""
    return [file.first_index for file in store.segments.data(store.end_index)
            if file.first_index >= 0]  # fmt: skip


def test_the_first_entries_of_segments_are_right_when_the_log_is_cut_and_grows_again(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    assert listed(store) == first_entries(store)

    for first_index in (100, 61, 37, 11, 1):
        store.truncate(first_index)
        assert listed(store) == first_entries(store)
        store.append_bodies([bytes(700)] * (len(BODIES) - first_index), term=2 + 120 - first_index)
        assert listed(store) == first_entries(store)


def test_the_first_entries_of_segments_are_right_after_the_front_is_removed(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(len(BODIES) - 1)
    listed(store)
    first_index = store.front.sealed_segments()[1].last_index + 1
    remove_before(store, first_index)

    assert listed(store) == first_entries(store)
    assert store.front.sealed_segments()[0].last_index + 1 == listed(store)[1]


def test_segments_beyond_the_committed_index_are_not_readable_and_are_listed_later(
    open_store: OpenStore,
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)

    early = store.segments.data(20)
    late = store.segments.data(len(BODIES) - 1)

    assert [file.first_index for file in early if file.first_index > 20] == []
    assert any(file.readable_bytes == 0 and file.first_index == -1 for file in early)
    assert [file.first_index for file in late] == first_entries(store)


@pytest.mark.parametrize("limit_index", [-1, 0, 20, len(BODIES) - 1, 2 * len(BODIES)])
def test_what_is_readable_of_one_file_is_what_its_list_says(
    open_store: OpenStore, limit_index: int
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    segments = store.segments

    for folder, listed in (
        ("data", segments.data(limit_index)), ("index", segments.index(limit_index))
    ):  # fmt: skip
        assert len(listed) > 1
        found = [segments.readable_bytes(folder, file.name, limit_index) for file in listed]
        assert found == [file.readable_bytes for file in listed]
    assert segments.readable_bytes("data", f"{9:020}", limit_index) is None


def test_a_second_list_reads_the_index_once_however_many_segments_there_are(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.segments.data(store.end_index)
    store.front.sealed_segments()
    read, unit = list[int](), LogFiles.unit

    def counted(files: LogFiles, index: int) -> object:
        read.append(index)
        return unit(files, index)

    monkeypatch.setattr(LogFiles, "unit", counted)
    assert len(store.segments.data(store.end_index)) > 10
    store.front.sealed_segments()

    assert read == [store.end_index] * 2


def test_what_is_no_segment_in_the_folders_is_named(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    assert store.segments.foreign() == []
    odd = ["data/notes.txt", f"data/{disk.file_name(1)}", "index/00000"]
    for name in odd:
        (folder / name).write_bytes(b"")
    (folder / "data" / os.fsdecode(b"\xff")).mkdir()

    assert set(store.segments.foreign()) == {*odd, "data/\\xff"}


def test_what_is_named_as_no_segment_stops_the_next_start(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.close()
    (folder / "data" / "notes.txt").write_bytes(b"")

    with pytest.raises(StoreDamagedError, match=r"notes.txt.*move it away"):
        open_store()


def test_segments_that_come_and_go_are_never_named(open_store: OpenStore) -> None:
    store, named, ended = open_store(), [], threading.Event()

    def look() -> None:
        while not ended.is_set():
            named.extend(store.segments.foreign())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for term in range(1, 20):
            store.append_bodies(BODIES, term=term)
            store.truncate(store.end_index - len(BODIES) + 2)
        commit(store, store.end_index)
        for sealed in store.front.sealed_segments():
            remove_before(store, sealed.last_index + 1)
    finally:
        ended.set()
        thread.join()

    assert named == []


@pytest.mark.parametrize("size_bytes", [SEGMENT_BYTES, 1])
def test_a_segment_that_came_back_before_the_front_is_named_if_the_next_start_refuses_it(
    size_bytes: int, open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    commit(store, store.end_index)
    remove_front(store, 3)
    came_back = 2 * SEGMENT_BYTES if size_bytes == 1 else 0
    (folder / "data" / disk.file_name(came_back)).write_bytes(bytes(size_bytes))

    assert store.segments.foreign() == [f"data/{disk.file_name(came_back)}"]
    store.close()
    with pytest.raises(StoreDamagedError):
        open_store()


def test_a_folder_that_cannot_be_listed_names_nothing(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    (folder / "index").rename(folder / "elsewhere")

    assert store.segments.foreign() == []
    (folder / "elsewhere").rename(folder / "index")


def test_a_long_front_that_is_being_removed_costs_one_look_at_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of files would cost minutes of the processor for a large log."""
    count, names = 300, list[int]()
    for number in range(count):
        (tmp_path / disk.file_name(number * SEGMENT_BYTES)).write_bytes(bytes(SEGMENT_BYTES))
    segments = SegmentList.load(tmp_path, SEGMENT_BYTES)
    segments.take_before((count - 1) * SEGMENT_BYTES)
    name_of = disk.file_name

    def counted(start: int) -> str:
        names.append(start)
        return name_of(start)

    monkeypatch.setattr(disk, "file_name", counted)

    assert segments.foreign() == []
    assert len(names) <= 2 * count


@pytest.mark.parametrize(
    ("kind", "damage"), [("data", Damage.UNREADABLE), ("index", Damage.WRONG_INDEX)]
)
def test_a_file_that_was_cut_short_under_an_auditor_tells_its_first_entry(
    kind: Literal["data", "index"], damage: Damage, open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    commit(store, store.end_index)
    lists = {"data": store.segments.data, "index": store.segments.index}
    cut = lists[kind](store.end_index)[2]
    os.truncate(folder / kind / cut.name, 100)

    with pytest.raises(StoreDamagedError) as caught:
        store.segments.read(kind, cut.name, 0, cut.readable_bytes)

    assert (caught.value.damage, caught.value.index) == (damage, cut.first_index)
