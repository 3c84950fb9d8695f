"""A crash between the two steps of a removal at which nothing was mended, as on a full volume.

The beginning is saved, and the files before it are still there, all or some of them.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_node.errors import StoreDamagedError
from dledger_node.healing import set_aside
from dledger_node.healing.mending import Mender
from dledger_node.raft.ready import HardState
from dledger_node.store.log.damaged_ranges import LogShape, damaged_ranges
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.served_segments import stored_bytes
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_node.store_command.command import ExitCode
from dledger_store_files.command import Command
from dledger_store_files.contents import flush
from dledger_store_files.damage import flip, poke

OpenStore = Callable[..., LogStore]
Crashed = Callable[[LogStore], Path]
Hurt = Callable[[Path, int], None]

SEGMENT_BYTES = 4096
ENTRIES_IN_SEGMENT = 27
ENTRY_BYTES = 148
FIRST_KEPT = 81
"""The first entry of the fourth segment."""
LAST_GONE = FIRST_KEPT - 1
CHANNEL_AT, CHAIN_AT = 32, 36


@pytest.fixture
def store(open_store: OpenStore) -> LogStore:
    """An open store whose entries up to 190 are known as committed."""
    store = open_store()
    store.append_bodies([b"%04d" % number * 25 for number in range(200)], 2)
    flush(store)
    store.save_checkpoint(190)
    return store


@pytest.fixture
def twin(store: LogStore, folder: Path, tmp_path: Path) -> Path:
    """The folder of a peer with the same log."""
    return Path(shutil.copytree(folder, tmp_path / "twin"))


class FolderPeer:
    """A peer with the same log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stored(self, name: str, at: int, size: int, known: bytes = b"") -> bytes:
        return stored_bytes(self._folder / disk.DATA_FOLDER, name, at, size, 1 << 40)


def pos_of(index: int) -> int:
    segment, place = divmod(index, ENTRIES_IN_SEGMENT)
    return segment * SEGMENT_BYTES + place * ENTRY_BYTES


def flip_byte(folder: Path, index: int, *, at: int) -> None:
    flip(folder / disk.DATA_FOLDER, pos_of(index) + at)


def spoil_header(folder: Path, index: int) -> None:
    poke(folder / disk.DATA_FOLDER, pos_of(index), b"\xa5" * disk.ENTRY_HEADER_SIZE)


HURTS = {
    "channel": partial(flip_byte, at=CHANNEL_AT),
    "chain": partial(flip_byte, at=CHAIN_AT),
    "header": spoil_header,
    "body": partial(flip_byte, at=disk.ENTRY_HEADER_SIZE + 9),
}


def interrupted(store: LogStore, crashed: Crashed, *, deleted: int = 0) -> Path:
    """Begin a forced removal; return the folder as a crash leaves it."""
    begin = store.front.save_begin(FIRST_KEPT, mend_first=False)
    if deleted:
        files = store.front.forget_before(begin, mend_first=False)
        store.front.delete(files[:deleted])
    return crashed(store)


@pytest.mark.parametrize("deleted", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"margin_bytes": 0}, {"verify_all": True}], ids=str)
@pytest.mark.parametrize("index", [LAST_GONE, LAST_GONE - 5, ENTRIES_IN_SEGMENT * 2])
@pytest.mark.parametrize("hurt", HURTS.values(), ids=list(HURTS))
def test_damage_in_entries_that_a_removal_has_given_up_keeps_no_member_out(
    store: LogStore,
    folder: Path,
    open_store: OpenStore,
    crashed: Crashed,
    hurt: Hurt,
    index: int,
    options: dict[str, int | bool],
    deleted: int,
) -> None:
    hurt(folder, index)
    left = interrupted(store, crashed, deleted=deleted)

    again = open_store(left, **options)

    assert (again.begin_index, again.end_index) == (FIRST_KEPT, 199)
    assert again.entry(FIRST_KEPT)[1] == b"0081" * 25
    assert min((left / disk.DATA_FOLDER).iterdir()).name == disk.file_name(3 * SEGMENT_BYTES)


@pytest.mark.parametrize("deleted", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"verify_all": True}], ids=str)
@pytest.mark.parametrize("hurt", HURTS.values(), ids=list(HURTS))
def test_a_first_entry_that_rotted_is_found_and_mended_after_the_crash(
    store: LogStore,
    folder: Path,
    twin: Path,
    open_store: OpenStore,
    crashed: Crashed,
    hurt: Hurt,
    options: dict[str, bool],
    deleted: int,
) -> None:
    hurt(folder, FIRST_KEPT)
    left = interrupted(store, crashed, deleted=deleted)
    with pytest.raises(StoreDamagedError):
        open_store(left, **options)

    shape = LogShape(folder=left, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=320)
    checkpoint = load_checkpoint(left)
    assert checkpoint is not None
    mender = Mender(shape, {"n1": FolderPeer(twin)}, create_files=True)
    for damaged in damaged_ranges(shape, checkpoint):
        mender.mend(damaged, checkpoint)

    again = open_store(left, **options)
    assert (again.begin_index, again.end_index) == (FIRST_KEPT, 199)
    assert again.entry(FIRST_KEPT)[1] == b"0081" * 25


def test_files_before_a_beginning_stay_while_the_log_after_it_is_damaged(
    store: LogStore, folder: Path, open_store: OpenStore, crashed: Crashed
) -> None:
    left = interrupted(store, crashed)
    names = sorted(path.name for path in (left / disk.DATA_FOLDER).iterdir())
    spoil_header(left, 150)

    with pytest.raises(StoreDamagedError):
        open_store(left, verify_all=True)

    assert sorted(path.name for path in (left / disk.DATA_FOLDER).iterdir()) == names


@pytest.mark.parametrize("unit", [LAST_GONE, FIRST_KEPT])
def test_a_wrong_index_gives_up_nothing_before_it_is_rebuilt(
    store: LogStore, folder: Path, open_store: OpenStore, crashed: Crashed, unit: int
) -> None:
    """The header of the first entry is damaged too, so that only the index tells its place."""
    left = interrupted(store, crashed)
    spoil_header(left, FIRST_KEPT)
    poke(
        left / disk.INDEX_FOLDER,
        unit * disk.INDEX_UNIT_SIZE,
        b"\xa5" * disk.INDEX_UNIT_SIZE,
        segment_bytes=320,
    )
    names = sorted(path.name for path in (left / disk.DATA_FOLDER).iterdir())

    with pytest.raises(StoreDamagedError):
        open_store(left)

    assert sorted(path.name for path in (left / disk.DATA_FOLDER).iterdir()) == names


@pytest.mark.parametrize("deleted", [0, 1, 2])
@pytest.mark.parametrize("index", [LAST_GONE, ENTRIES_IN_SEGMENT * 2])
@pytest.mark.parametrize("hurt", HURTS.values(), ids=list(HURTS))
def test_damage_before_the_beginning_sets_no_sound_segment_aside(
    store: LogStore,
    folder: Path,
    open_store: OpenStore,
    crashed: Crashed,
    hurt: Hurt,
    index: int,
    deleted: int,
) -> None:
    hurt(folder, index)
    left = interrupted(store, crashed, deleted=deleted)
    save_hard_state(left, HardState(term=2, vote_for=None))
    spoil_header(left, 170)  # of the seventh segment

    found = set_aside.survey(left, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=320)
    assert (found.end_index, len(found.lost_names)) == (161, 2)
    set_aside.set_aside_log(left, found, verdict="BadEntry", moment="now")

    again = open_store(left)
    assert (again.begin_index, again.end_index) == (FIRST_KEPT, 161)


def test_nothing_before_the_beginning_is_kept_if_no_segment_after_it_is_sound(
    store: LogStore, open_store: OpenStore, crashed: Crashed
) -> None:
    """Otherwise the next start would take what was removed for the log."""
    left = interrupted(store, crashed)
    save_hard_state(left, HardState(term=2, vote_for=None))
    spoil_header(left, FIRST_KEPT + 5)

    found = set_aside.survey(left, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=320)
    assert (found.end_index, len(found.lost_names)) == (-1, 8)
    set_aside.set_aside_log(left, found, verdict="BadEntry", moment="now")

    assert open_store(left).end_index == -1


@pytest.mark.parametrize("deleted", [0, 1, 2])
@pytest.mark.parametrize("index", [LAST_GONE, ENTRIES_IN_SEGMENT * 2])
@pytest.mark.parametrize("hurt", HURTS.values(), ids=list(HURTS))
def test_damage_before_the_beginning_is_no_damage_to_the_store(
    store: LogStore,
    folder: Path,
    crashed: Crashed,
    store_command: Command,
    hurt: Hurt,
    index: int,
    deleted: int,
) -> None:
    hurt(folder, index)
    left = interrupted(store, crashed, deleted=deleted)
    save_hard_state(left, HardState(term=2, vote_for=None))

    assert store_command("verify", left) == ExitCode.REPAIRABLE
    finding = store_command.finding("left_behind")
    assert finding["file"] == f"data/{disk.file_name(deleted * SEGMENT_BYTES)}"
    assert finding["detail"].startswith(
        ("3 segments lie", "2 segments lie", "1 segment lies")[deleted]
    )
    summary = store_command.summary
    assert summary["findings"] == {"left_behind": 1}
    assert summary["runs"] == [{"firstIndex": FIRST_KEPT, "lastIndex": 199, "term": 2}]


def test_damage_at_the_beginning_is_damage_to_the_store(
    store: LogStore, crashed: Crashed, store_command: Command
) -> None:
    left = interrupted(store, crashed)
    save_hard_state(left, HardState(term=2, vote_for=None))
    spoil_header(left, FIRST_KEPT)

    assert store_command("verify", left) == ExitCode.DAMAGED
    assert store_command.finding("damaged_entries")["lastIndex"] == FIRST_KEPT
