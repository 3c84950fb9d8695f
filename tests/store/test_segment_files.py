import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreFullError
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.segments.open_files import Descriptor, OpenFiles
from dledger_node.store.segments.segment import Segment
from dledger_store_files.contents import flush

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


def test_the_folders_hold_only_what_java_accepts(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    store.preallocate()
    for name, size in (("data", 4096), ("index", 320)):
        starts = [disk.start_offset(path.name) for path in sorted((folder / name).iterdir())]
        assert starts == [size * number for number in range(len(starts))]
        assert {path.stat().st_size for path in (folder / name).iterdir()} == {size}


def test_preallocated_segments_are_used(open_store: OpenStore, folder: Path) -> None:
    store = open_store()
    store.append_bodies([bytes(2900)], term=1)
    store.preallocate()
    store.preallocate()
    made = {spare.stat().st_ino for spare in folder.glob("data-*")}
    assert len(made) == 2, "small segments are created two at a time"

    store.append_bodies([bytes(2000)], term=1)

    assert (folder / "data" / disk.file_name(4096)).stat().st_ino in made
    assert len(list(folder.glob("data-*"))) == 1


def test_a_flush_looks_at_its_own_segments_alone_however_many_the_log_has(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.append_bodies([bytes(3000)] * 100, term=1)
    flush(store)
    store.append_bodies([bytes(3000)] * 2, term=1)
    looked_at = set[Path]()
    end = Segment.end

    def counted(file: Segment) -> int:
        looked_at.add(file.path)
        return int(end.fget(file))  # type: ignore[attr-defined]

    monkeypatch.setattr(Segment, "end", property(counted))
    target = store.flush_target()

    assert [file.start // 4096 for file in target.files] == [99, 100, 101]
    assert len(looked_at) <= len(target.files)


@pytest.mark.parametrize("start", range(0, 5 * 4096, 1024))
def test_segments_between_two_positions_are_those_that_hold_a_byte_of_them(
    open_store: OpenStore, start: int
) -> None:
    """The log has lost its front: its first segment begins at 4096, and its last ends at 16384."""
    store = open_store()
    store.append_bodies([bytes(3000)] * 4, term=1)
    files = store._files.data
    files.take_before(4096)

    for end in range(0, 5 * 4096 + 1, 1024):
        held = [file for file in files.files if file.start < end and file.end > start]
        assert list(files.files_between(start, end)) == held


def test_a_segment_for_which_the_volume_has_too_few_blocks_takes_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ext4, a save of the vote at that moment would find no block."""
    taken: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *arguments: taken.append(arguments))
    volume = os.statvfs(tmp_path)

    with pytest.raises(StoreFullError, match="no room for a segment"):
        Segment.create(tmp_path / "0", (volume.f_blocks + 1) * volume.f_frsize, OpenFiles())

    assert not taken
    assert not list(tmp_path.iterdir())


def test_spare_segments_do_not_outlive_the_store(open_store: OpenStore, folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "data-7.spare").write_bytes(b"left by a crash")
    store = open_store()
    assert not list(folder.glob("*.spare"))
    store.reserve([4000] * 3)
    assert list(folder.glob("*.spare"))
    store.close()

    assert not list(folder.glob("*.spare"))


def test_closing_a_store_twice_closes_no_other_files(open_store: OpenStore, folder: Path) -> None:
    closed = open_store()
    closed.close()
    other = open_store(folder.with_name("other"))
    other.append_bodies(BODIES, term=1)
    with contextlib.suppress(ValueError):
        closed.close()

    other.flush(other.flush_target())
    assert other.entry(0)[1] == BODIES[0]


def test_reserving_room_writes_nothing(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"x"], term=1)
    store.reserve([4000] * 3)

    assert store.end_index == 0
    assert len(store.segments.data(0)) == 1


def test_the_manifest_shows_whole_records_up_to_the_limit(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([bytes(952)] * 10, term=1)  # four entries of 1000 bytes in a segment

    files = store.segments.data(5)

    assert [(file.name, file.readable_bytes, file.first_index) for file in files] == [
        (disk.file_name(0), 4096, 0),
        (disk.file_name(4096), 2000, 4),
        (disk.file_name(8192), 0, -1),
    ]
    assert {file.size_bytes for file in files} == {4096}


def test_the_manifest_of_the_index_shows_whole_units(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies([b"x"] * 25, term=1)

    files = store.segments.index(12)

    assert [(file.readable_bytes, file.first_index) for file in files] == [
        (320, 0),
        (96, 10),
        (0, -1),
    ]


@pytest.mark.parametrize("committed_index", [-1, 99])
def test_the_manifest_takes_any_committed_index(
    open_store: OpenStore, committed_index: int
) -> None:
    store = open_store()
    store.append_bodies([bytes(952)] * 3, term=1)

    (file,) = store.segments.data(committed_index)

    assert file.readable_bytes == (0 if committed_index == -1 else 3000)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda store: store.segments.data(5),
        lambda store: store.segments.stored(disk.file_name(0), 0, 100, 5),
    ],
    ids=["the list of files", "stored bytes"],
)
def test_a_segment_that_closes_while_it_is_looked_up_is_no_longer_there(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, look_up: Callable[[LogStore], object]
) -> None:
    store = open_store()
    store.append_bodies([bytes(952)] * 10, term=1)
    unit = LogFiles.unit

    def closing(files: LogFiles, index: int) -> disk.IndexUnit:
        files.index.close()
        return unit(files, index)

    monkeypatch.setattr(LogFiles, "unit", closing)

    with pytest.raises(LookupError, match="is closed"):
        look_up(store)


def test_a_segment_is_read_by_its_name(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    unit = store.position(3)

    assert (
        store.segments.read("data", disk.file_name(0), unit.pos + 48, unit.pos + unit.size)
        == (BODIES[3])
    )
    assert (
        disk.unpack_index_unit(store.segments.read("index", disk.file_name(0), 96, 128), 0) == unit
    )


@pytest.mark.parametrize("name", ["../currterm", "0" * 19 + "1", ""])
def test_files_that_are_not_segments_are_not_served(open_store: OpenStore, name: str) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)

    with pytest.raises(FileNotFoundError):
        store.segments.read("data", name, 0, 1)


@pytest.mark.parametrize("moment", ["before it is opened", "before the sync"])
def test_a_segment_that_is_removed_during_its_sync_needs_none(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Retention removes a file in one thread while another one flushes it."""
    store = open_store()
    store.append_bodies(BODIES, term=1)
    segment = store.flush_target().files[0]
    descriptor, sync = Segment._descriptor, os.fdatasync

    def remove_then_open(removed: Segment) -> Descriptor:
        removed.remove()
        return descriptor(removed)

    def remove_then_sync(fd: int) -> None:
        segment.remove()
        sync(fd)

    if moment == "before it is opened":
        monkeypatch.setattr(Segment, "_descriptor", remove_then_open)
    else:
        monkeypatch.setattr(os, "fdatasync", remove_then_sync)
    segment.sync()

    assert segment.removed
