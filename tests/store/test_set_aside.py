"""Setting a damaged log aside: the part that is kept, and crashes at every step."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk, memberships
from dledger_node.errors import Damage, StoreDamagedError, StoreError, StoreFullError
from dledger_node.healing import set_aside
from dledger_node.healing.set_aside import Survey
from dledger_node.raft.membership import Membership
from dledger_node.raft.ready import HardState
from dledger_node.store.derived import memberships_file
from dledger_node.store.derived.membership_bodies import body_of
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_store_files.contents import bodies_of, files_under, flush
from dledger_store_files.damage import flip

OpenStore = Callable[..., LogStore]

SEGMENT_BYTES, INDEX_SEGMENT_BYTES = 4096, 320
BODIES = [b"%04d" % number * 25 for number in range(100)]
PER_SEGMENT = 27
"""Entries of 148 bytes per segment."""
HARD_STATE = HardState(term=3, vote_for="n1", alone=True)


@pytest.fixture
def sound(open_store: OpenStore, folder: Path) -> Path:
    """The folder of a store with a few segments, a checkpoint, and a term."""
    store = open_store()
    store.append_bodies(BODIES, 2)
    flush(store)
    store.save_checkpoint(90)
    store.close()
    save_hard_state(folder, HARD_STATE)
    return folder


def surveyed(folder: Path) -> Survey:
    return set_aside.survey(
        folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=INDEX_SEGMENT_BYTES
    )


def segment(folder: Path, number: int) -> Path:
    return folder / disk.DATA_FOLDER / disk.file_name(number * SEGMENT_BYTES)


def flip_a_body(folder: Path) -> None:
    flip(folder / disk.DATA_FOLDER, 2 * SEGMENT_BYTES + 100)


def remove_a_segment(folder: Path) -> None:
    segment(folder, 2).unlink()


def remove_the_first_segment(folder: Path) -> None:
    segment(folder, 0).unlink()


def remove_all(folder: Path) -> None:
    shutil.rmtree(folder / disk.DATA_FOLDER)
    (folder / disk.DATA_FOLDER).mkdir()


def remove_the_last(folder: Path) -> None:
    segment(folder, 3).unlink()


DAMAGES: list[tuple[Callable[[Path], None], int]] = [
    (flip_a_body, 2),
    (remove_a_segment, 2),
    (remove_the_first_segment, 0),
    (remove_all, 0),
    (remove_the_last, 3),
]


@pytest.mark.parametrize(("hurt", "kept"), DAMAGES)
def test_whole_sound_segments_are_kept_and_the_others_are_set_aside(
    sound: Path, open_store: OpenStore, hurt: Callable[[Path], None], kept: int
) -> None:
    hurt(sound)
    with pytest.raises(StoreDamagedError):
        open_store()
    data = sound / disk.DATA_FOLDER
    before = {path.name: path.read_bytes() for path in data.iterdir()}

    found = surveyed(sound)
    joining = set_aside.set_aside_log(sound, found, verdict="BadEntry", moment="now")

    assert not found.log_is_sound
    assert found.hard_state == HARD_STATE
    store = open_store()
    assert bodies_of(store) == BODIES[: kept * PER_SEGMENT]
    assert store.committed_index == min(90, kept * PER_SEGMENT - 1)
    assert joining == HardState(term=3, vote_for="n1", joining=True)
    assert load_hard_state(sound) == joining
    (aside,) = set_aside.list_set_aside(sound)
    assert (aside.first_index, aside.last_index) == (kept * PER_SEGMENT, 99)
    held = {path.name: path.read_bytes() for path in aside.folder.iterdir()}
    kept_names = {disk.file_name(number * SEGMENT_BYTES) for number in range(kept)}
    assert {name: held[name] for name in before if name not in kept_names} == {
        name: content for name, content in before.items() if name not in kept_names
    }


def test_a_survey_of_a_sound_store_finds_no_damage(sound: Path) -> None:
    before = files_under(sound)

    found = surveyed(sound)

    assert (found.log_is_sound, found.index_is_sound) == (True, True)
    assert (found.end_index, found.end_term, found.hard_state) == (99, 2, HARD_STATE)
    assert files_under(sound) == before


def test_an_index_with_a_gap_is_set_aside_and_rebuilt(sound: Path, open_store: OpenStore) -> None:
    (sound / disk.INDEX_FOLDER / disk.file_name(INDEX_SEGMENT_BYTES)).unlink()
    with pytest.raises(StoreDamagedError):
        open_store()
    found = surveyed(sound)
    assert (found.log_is_sound, found.index_is_sound) == (True, False)

    set_aside.set_aside_index(sound, moment="now")

    assert bodies_of(open_store()) == BODIES
    assert load_hard_state(sound) == HARD_STATE


def test_the_only_file_of_a_log_is_set_aside_if_it_was_cut_short(
    open_store: OpenStore, folder: Path
) -> None:
    """No other file shows how long it was; the index does."""
    store = open_store(segment=1 << 16)
    store.append_bodies(BODIES, 1)
    store.close()
    save_hard_state(folder, HARD_STATE)
    (path,) = (folder / disk.DATA_FOLDER).iterdir()
    os.truncate(path, 1000)
    with pytest.raises(StoreDamagedError, match="was cut short") as refused:
        open_store(segment=1 << 16)
    assert refused.value.damage is Damage.UNREADABLE
    found = set_aside.survey(
        folder, segment_size_bytes=1 << 16, index_segment_size_bytes=INDEX_SEGMENT_BYTES
    )

    set_aside.set_aside_log(folder, found, verdict="Unreadable", moment="now")

    assert open_store(segment=1 << 16).is_empty
    assert load_hard_state(folder).joining


def test_the_only_file_of_an_index_is_rebuilt_if_it_was_cut_short(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store(index_segment=1 << 14)
    store.append_bodies(BODIES, 1)
    store.close()
    (path,) = (folder / disk.INDEX_FOLDER).iterdir()
    os.truncate(path, 1000)
    with pytest.raises(StoreDamagedError, match="was cut short") as refused:
        open_store(index_segment=1 << 14)
    assert refused.value.damage is Damage.UNREADABLE
    found = set_aside.survey(
        folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=1 << 14
    )  # fmt: skip
    assert (found.log_is_sound, found.index_is_sound) == (True, False)

    set_aside.set_aside_index(folder, moment="now")

    assert bodies_of(open_store(index_segment=1 << 14)) == BODIES


@pytest.mark.parametrize("text", ["", "currTerm=1\nvoteLeader=\n", None])
def test_a_member_with_a_lost_vote_joins_and_keeps_its_log(
    sound: Path, open_store: OpenStore, text: str | None
) -> None:
    """The term file is empty, older than the log, or missing."""
    path = sound / "currterm"
    path.unlink()
    if text is not None:
        path.write_text(text)

    found = surveyed(sound)
    joining = set_aside.set_aside_log(sound, found, verdict="HardState", moment="now")

    assert found.hard_state is None
    assert joining == HardState(term=2, vote_for=None, joining=True)
    assert bodies_of(open_store()) == BODIES
    (aside,) = set_aside.list_set_aside(sound)
    assert (aside.folder / "currterm").exists() == (text is not None)


def test_a_store_without_log_and_term_has_no_hard_state(sound: Path) -> None:
    """Otherwise such a member would pass for one of a new group."""
    remove_all(sound)
    (sound / "currterm").unlink()

    assert surveyed(sound).hard_state is None


def test_only_the_memberships_of_the_kept_log_are_known(
    open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    voters = Membership(("n0", "n1", "n2"))
    for learner in ("n3", "n4"):
        store.append_bodies(BODIES[:40], 1)
        body = body_of(Membership(voters.voters, (learner,)))
        store.append_bodies([body], 1, [memberships.MEMBERSHIP_CHANNEL], disk.NOOP)
    store.append_bodies(BODIES, 1)
    flush(store)
    store.save_checkpoint(store.end_index)
    store.close()
    save_hard_state(folder, HARD_STATE)
    flip_a_body(folder)

    set_aside.set_aside_log(folder, surveyed(folder), verdict="BadEntry", moment="now")

    assert [entry.index for entry in open_store().memberships.entries] == [40]


@pytest.mark.parametrize("readable", [True, False])
def test_a_log_with_a_lost_front_is_set_aside_as_a_whole(
    sound: Path, open_store: OpenStore, readable: bool
) -> None:
    (sound / "memberships").write_bytes(memberships_file.encode(()) if readable else b"none")

    found = set_aside.survey(
        sound,
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=INDEX_SEGMENT_BYTES,
        front_is_lost=readable,
    )
    set_aside.set_aside_log(sound, found, verdict="Memberships", moment="now")

    assert found.hard_state == HARD_STATE
    assert open_store().end_index == -1
    (aside,) = set_aside.list_set_aside(sound)
    assert (aside.folder / "memberships").exists()
    assert len(list(aside.folder.iterdir())) == 2 + len(found.lost_names)


class CrashError(Exception):
    """Simulates the end of the process."""


def crash_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crash at the n-th call that changes a name or syncs."""
    calls = itertools.count()
    for name in ("rename", "replace", "mkdir", "fsync"):
        real = getattr(os, name)

        def counted(*arguments: Any, real: Any = real, **options: Any) -> Any:
            if next(calls) == call:
                raise CrashError
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, counted)


@pytest.mark.parametrize(("hurt", "kept"), DAMAGES)
def test_a_crash_at_any_step_leaves_damage_or_a_joining_member(
    sound: Path,
    memory_path: Path,
    open_store: OpenStore,
    hurt: Callable[[Path], None],
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hurt(sound)
    for call in itertools.count():
        at = memory_path / f"crashed-{call}"
        shutil.copytree(sound, at)
        found = surveyed(at)
        with monkeypatch.context() as broken:
            crash_at(call, broken)
            try:
                set_aside.set_aside_log(at, found, verdict="BadEntry", moment="first")
            except CrashError:
                done = False
            else:
                done = True
        if not _opens(at, open_store):
            again = surveyed(at)
            assert again.hard_state is not None
            set_aside.set_aside_log(at, again, verdict="BadEntry", moment="second")
        store = open_store(at)
        assert bodies_of(store) == BODIES[: kept * PER_SEGMENT]
        store.close()
        state = load_hard_state(at)
        assert (state.term, state.vote_for, state.joining) == (3, "n1", True)
        names = {path.name for one in set_aside.list_set_aside(at) for path in one.folder.iterdir()}
        lost = {path.name for path in (sound / disk.DATA_FOLDER).iterdir()}
        lost -= {path.name for path in (at / disk.DATA_FOLDER).iterdir()}
        assert lost <= names
        shutil.rmtree(at)
        if done:
            assert call > 5
            return


def _opens(folder: Path, open_store: OpenStore) -> bool:
    try:
        open_store(folder).close()
    except StoreDamagedError:
        return False
    return True


def test_a_failed_save_leaves_the_store_unchanged(
    sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_a_body(sound)
    found = surveyed(sound)
    before = files_under(sound)

    def full(*_: object) -> None:
        raise StoreError("no room")

    monkeypatch.setattr(set_aside.hard_state, "save_hard_state", full)
    with pytest.raises(StoreError):
        set_aside.set_aside_log(sound, found, verdict="BadEntry", moment="now")

    assert files_under(sound) == before
    assert set_aside.list_set_aside(sound) == []


def test_attempts_on_a_full_volume_do_not_count_as_failures_of_the_disk(
    sound: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After four of them, the member would stay out, also once there is room."""
    flip_a_body(sound)

    def full(*_: Any) -> None:
        raise StoreFullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(set_aside.checkpoint_file, "save_checkpoint", full)
        for number in range(5):
            with pytest.raises(StoreFullError):
                set_aside.set_aside_log(
                    sound, surveyed(sound), verdict="BadEntry", moment=f"{number}"
                )
    assert len(set_aside.list_set_aside(sound)) == 1
    set_aside.set_aside_log(sound, surveyed(sound), verdict="BadEntry", moment="last")

    assert bodies_of(open_store()) == BODIES[: 2 * PER_SEGMENT]


def test_damaged_files_are_deleted_one_by_one_and_then_as_a_whole(sound: Path) -> None:
    flip_a_body(sound)
    set_aside.set_aside_log(sound, surveyed(sound), verdict="BadEntry", moment="now")
    (aside,) = set_aside.list_set_aside(sound)

    assert set_aside.delete_newest_file(aside) == aside.folder / segment(sound, 3).name
    assert set_aside.list_set_aside(sound) == [aside], "the range of lost entries is still known"
    set_aside.delete(aside)

    assert set_aside.list_set_aside(sound) == []
