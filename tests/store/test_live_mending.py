"""Mending the log of an open store: while it is appended to, and while it goes away."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.healing import live_mending
from dledger_node.healing.live_mending import UNEXPLAINED_MAX, LiveMender
from dledger_node.healing.mending import CannotMendError, MendedTotals
from dledger_node.store.log.damaged_ranges import LogShape, Scanned
from dledger_node.store.log.entry_walk import Cursor
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.served_segments import stored_bytes
from dledger_store_files.contents import bodies_of, flush
from dledger_store_files.damage import flip
from dledger_store_files.upkeep import remove_before

OpenStore = Callable[..., LogStore]

BODIES = [b"%04d" % number * 25 for number in range(100)]
DAMAGED_POS = 4096 + 148 + 100
DAMAGED_INDEX = 28


class Twin:
    """A peer with the same log; `before` is called before it answers."""

    def __init__(self, folder: Path, before: Callable[[], object]) -> None:
        self._folder = folder
        self._before = before

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        self._before()
        return stored_bytes(self._folder / disk.DATA_FOLDER, name, at, size, 1 << 40)


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """An open store whose entries up to 90 are known as committed."""
    opened = open_store()
    opened.append_bodies(BODIES, 2)
    flush(opened)
    opened.save_checkpoint(90)
    opened.distrust()
    return opened


@pytest.fixture
def twin(store: LogStore, folder: Path, tmp_path: Path) -> Path:
    """The folder of a peer with the same log."""
    return Path(shutil.copytree(folder, tmp_path / "twin"))


def mender_of(
    store: LogStore, folder: Path, twin: Path, before: Callable[[], object] = lambda: None
) -> tuple[LiveMender, MendedTotals]:
    totals = MendedTotals()
    shape = LogShape(folder=folder, segment_size_bytes=4096, index_segment_size_bytes=320)
    return LiveMender(shape, store, {"n1": Twin(twin, before)}, totals), totals


def damage_found(store: LogStore) -> StoreDamagedError:
    with pytest.raises(StoreDamagedError):
        store.read_range(20, 40, 1 << 20)
    assert store.damage is not None
    return store.damage


def test_damage_is_mended_while_entries_are_appended(
    store: LogStore, folder: Path, twin: Path
) -> None:
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    mender, totals = mender_of(store, folder, twin, lambda: store.append_bodies([b"more"], 2))

    mender.mend_near(damage_found(store))

    assert (totals.ranges, totals.entries, totals.bytes) == (1, 1, 148)
    more = store.end_index + 1 - len(BODIES)
    assert more >= 1
    assert bodies_of(store) == BODIES + [b"more"] * more


def test_nothing_is_written_once_the_store_is_closed(
    store: LogStore, folder: Path, twin: Path
) -> None:
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    mender, totals = mender_of(store, folder, twin, store.close)
    damage = damage_found(store)
    before = (folder / disk.DATA_FOLDER / disk.file_name(4096)).read_bytes()

    with pytest.raises(CannotMendError, match="has changed meanwhile"):
        mender.mend_near(damage)

    assert totals.ranges == 0
    assert (folder / disk.DATA_FOLDER / disk.file_name(4096)).read_bytes() == before


def test_what_retention_removes_meanwhile_is_not_missed(
    store: LogStore, folder: Path, twin: Path
) -> None:
    """Its files read as zeros, but they are not damaged."""
    mender, totals = mender_of(store, folder, twin)
    place = mender.first_place()
    assert place is not None
    first_index = next(i for i in range(100) if store.position(i).pos == 2 * 4096)
    remove_before(store, first_index)

    scanned = mender.step(place, 1 << 20)

    assert totals.ranges == 0
    assert scanned.end.index >= first_index


def test_a_missing_file_of_an_open_store_is_not_created(
    store: LogStore, folder: Path, twin: Path
) -> None:
    path = folder / disk.DATA_FOLDER / disk.file_name(4096)
    path.unlink()
    mender, _ = mender_of(store, folder, twin)
    place = mender.first_place()
    assert place is not None

    mender.step(place, 1 << 20)

    assert "is missing" in mender.waits.problems[0]
    assert not path.exists()


def test_damage_that_is_not_in_the_data_is_believed_a_few_times(
    store: LogStore, folder: Path, twin: Path
) -> None:
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    damage = damage_found(store)
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    mender, totals = mender_of(store, folder, twin)

    for _ in range(UNEXPLAINED_MAX):
        mender.mend_near(damage)
    with pytest.raises(CannotMendError, match="the data files are sound"):
        mender.mend_near(damage)

    assert totals.ranges == 0


def test_damage_that_retention_has_removed_before_the_search_is_no_false_alarm(
    store: LogStore, folder: Path, twin: Path
) -> None:
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    damage = damage_found(store)
    mender, totals = mender_of(store, folder, twin)
    remove_before(store, next(i for i in range(100) if store.position(i).pos == 2 * 4096))

    for _ in range(UNEXPLAINED_MAX + 1):
        mender.mend_near(damage)

    assert totals.ranges == 0


def test_damage_of_which_only_the_kind_is_known_is_looked_for_in_the_whole_log(
    store: LogStore, folder: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_mending, "NEARBY_BYTES", 1024)
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    mender, totals = mender_of(store, folder, twin)

    mender.mend_near(StoreDamagedError("an unreadable sector", Damage.UNREADABLE))

    assert (totals.ranges, totals.entries) == (1, 1)
    assert bodies_of(store) == BODIES


def test_a_log_that_is_closed_meanwhile_is_not_searched_further(
    store: LogStore, folder: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_mending, "NEARBY_BYTES", 1024)
    mender, _ = mender_of(store, folder, twin)
    step, places = mender.step, list[int]()

    def close_first(cursor: Cursor, bytes_max: int, found: StoreDamagedError) -> Scanned:
        store.generation += 1
        places.append(cursor.pos)
        return step(cursor, bytes_max, found)

    monkeypatch.setattr(mender, "step", close_first)
    mender.mend_near(StoreDamagedError("an unreadable sector", Damage.UNREADABLE))

    assert places == [0]


@pytest.mark.parametrize("sound_again", ["mended", "read as a whole"])
def test_damage_that_is_not_in_the_data_is_forgotten_once_the_log_is_sound(
    store: LogStore, folder: Path, twin: Path, sound_again: str
) -> None:
    """A few harmless races in months must not make a sound member leave."""
    mender, totals = mender_of(store, folder, twin)
    damage = StoreDamagedError("gone already", Damage.BAD_ENTRY, DAMAGED_INDEX)
    for _ in range(UNEXPLAINED_MAX):
        mender.mend_near(damage)

    if sound_again == "mended":
        flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
        mender.mend_near(damage)
    else:
        mender.note_whole()
    for _ in range(UNEXPLAINED_MAX):
        mender.mend_near(damage)

    assert totals.ranges == (sound_again == "mended")


def test_damage_that_no_committed_entry_follows_is_not_mended(
    store: LogStore, folder: Path, twin: Path
) -> None:
    pos = store.position(90).pos
    flip(folder / disk.DATA_FOLDER, pos + 60)
    mender, _ = mender_of(store, folder, twin)
    place = mender.first_place()
    assert place is not None

    with pytest.raises(CannotMendError, match="entry 90 is damaged, and no sound committed entry"):
        mender.step(place, 1 << 20)


def test_a_file_that_is_cut_short_is_found_by_its_size(store: LogStore, folder: Path) -> None:
    assert store.segments.short_file() is None
    path = folder / disk.DATA_FOLDER / disk.file_name(4096)
    with path.open("r+b") as file:
        file.truncate(100)

    damage = store.segments.short_file()

    assert damage is not None
    assert damage.index == 27
    assert f"{path} was cut short: it has 100 bytes of 4096" in str(damage)


@pytest.mark.parametrize("size", [3000, 4000, 0])
@pytest.mark.parametrize("asked_at", [None, 0, 3500])
def test_a_file_that_is_cut_far_behind_its_first_entry_is_mended_at_once(
    store: LogStore,
    folder: Path,
    twin: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    asked_at: int | None,
) -> None:
    """The check of the sizes finds it, or an auditor who asks for bytes from somewhere on."""
    monkeypatch.setattr(live_mending, "NEARBY_BYTES", 512)
    path = folder / disk.DATA_FOLDER / disk.file_name(4096)
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(size)
    mender, totals = mender_of(store, folder, twin)

    if asked_at is None:
        damage = store.segments.short_file()
    else:
        with pytest.raises(StoreDamagedError) as caught:
            store.segments.read("data", path.name, asked_at, 4096)
        damage = caught.value
    assert damage is not None
    mender.mend_near(damage)

    assert totals.ranges == 1
    assert path.read_bytes() == whole
    assert store.segments.short_file() is None


def test_a_search_of_the_whole_log_pauses_after_each_slice(
    store: LogStore, folder: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_mending, "NEARBY_BYTES", 1024)
    flip(folder / disk.DATA_FOLDER, DAMAGED_POS)
    mender, totals = mender_of(store, folder, twin)
    damage = StoreDamagedError("an unreadable sector", Damage.UNREADABLE)

    slices = list(mender.search(damage))

    assert len(slices) > 1
    assert all(0 < read_bytes <= 4096 for read_bytes in slices)
    assert totals.ranges == 1
