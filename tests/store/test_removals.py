"""A member knows why its log begins where it does, also after a crash."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.retention import Removal, RemovalRule
from dledger_formats.log import disk
from dledger_node.errors import StoreError, StoreFullError
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.removals import Grounds, extended
from dledger_node.store.small_files import removals_file
from dledger_store_faults.contents import SMALL_SEGMENTS
from dledger_store_faults.tree_crashes import Tree, TreeRecorder, write_tree
from dledger_store_files.contents import flush

OpenStore = Callable[..., LogStore]
BY_SIZE = Grounds(
    rule=RemovalRule.SIZE,
    removed_at_ms=1_700_000_000_000,
    committed_index=39,
    covered_index=30,
    held_by_all_index=38,
)
BODIES = [bytes([number]) * (number * 37 % 900) for number in range(40)]


def filled(store: LogStore) -> LogStore:
    """Write forty committed entries in more than three segments."""
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(39)
    return store


def remove(store: LogStore, grounds: Grounds = BY_SIZE) -> int:
    """Remove the first segment as retention does; return the new first entry."""
    first_index = store.front.sealed_segments()[0].last_index + 1
    begin = store.front.save_begin(first_index, grounds)
    store.front.delete(store.front.forget_before(begin))
    return first_index


def rules(store: LogStore) -> list[RemovalRule]:
    return [removal.rule for removal in store.front.removals]


def test_a_new_log_has_removed_nothing(open_store: OpenStore, folder: Path) -> None:
    assert open_store().front.removals == ()
    assert removals_file.load(folder) == ()


def test_each_removal_is_known_after_a_restart(open_store: OpenStore) -> None:
    store = filled(open_store())
    first, second = remove(store), remove(store, Grounds(rule=RemovalRule.AGE))
    store.close()

    found = open_store().front.removals

    assert found == (
        Removal(
            first_index=0,
            last_index=first - 1,
            rule=RemovalRule.SIZE,
            removed_at_ms=1_700_000_000_000,
            committed_index=39,
            covered_index=30,
            held_by_all_index=38,
        ),
        Removal(first_index=first, last_index=second - 1, rule=RemovalRule.AGE),
    )


def test_a_removal_that_did_not_begin_is_not_told(open_store: OpenStore) -> None:
    store = filled(open_store())
    store.front.save_begin(store.front.sealed_segments()[0].last_index + 1, BY_SIZE)

    assert store.front.removals == ()


def test_a_removal_of_entries_that_may_not_go_is_not_recorded(open_store: OpenStore) -> None:
    store = open_store()
    store.append_bodies(BODIES, term=1)
    flush(store)
    store.save_checkpoint(3)

    with pytest.raises(StoreError, match="are not committed"):
        remove(store)

    assert removals_file.load(store._folder) == ()


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"#crc32=00000000\nx"])
def test_a_front_without_a_record_is_known_to_have_been_removed_on_purpose(
    open_store: OpenStore, folder: Path, content: bytes | None
) -> None:
    """The checkpoint says where the log begins; the folder may be of an earlier release."""
    store = filled(open_store())
    begin_index = remove(store)
    store.close()
    path = folder / removals_file.FILE_NAME
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    store = open_store()

    unrecorded = Removal(first_index=0, last_index=begin_index - 1, rule=RemovalRule.UNRECORDED)
    assert store.front.removals == (unrecorded,)
    assert removals_file.load(folder) == (unrecorded,)


def test_a_front_that_is_lost_has_no_removal(open_store: OpenStore, folder: Path) -> None:
    """Without the checkpoint a log opens that lacks its first segment, as Java's does."""
    filled(open_store()).close()
    (folder / "checkpoint").unlink()
    for name in ("data", "index"):
        min((folder / name).iterdir()).unlink()

    store = open_store()

    assert store.begin_index > 0
    assert store.front.removals == ()


def test_the_log_of_a_leader_replaces_what_it_begins_behind(open_store: OpenStore) -> None:
    store = filled(open_store())
    first = remove(store)
    packed = disk.pack_entries(
        [b"x"], magic=disk.NORMAL, first_index=100, term=2, pos=5 * 4096, previous_chain_crc=4711
    )

    store.replace(store.front.check(packed.data, first_index=100, last_index=100, term=2))
    flush(store)
    store.save_checkpoint(100)
    told = store.front.removals
    store.close()

    assert [(each.first_index, each.last_index) for each in told] == [(0, first - 1), (first, 99)]
    assert rules(store) == [RemovalRule.SIZE, RemovalRule.LEADER_LOG]
    assert open_store().front.removals == told


def test_the_oldest_of_many_removals_are_summed_up() -> None:
    removals: tuple[Removal, ...] = ()
    for number in range(1, 251):
        removals = extended(removals, number * 10, BY_SIZE)

    assert len(removals) == removals_file.REMOVALS_MAX
    assert (removals[0].first_index, removals[0].last_index) == (0, 1509)
    assert removals[0].rule is RemovalRule.EARLIER
    assert {removal.rule for removal in removals[1:]} == {RemovalRule.SIZE}
    assert removals_file.decode(removals_file.encode(removals)) == removals
    assert len(removals_file.encode(removals)) < removals_file.FILE_BYTES_MAX // 2


def test_a_removal_makes_room_although_its_record_finds_none(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(open_store())

    def full(*_: object) -> None:
        raise StoreFullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(removals_file, "save", full)
        remove(store)
    assert rules(store) == [RemovalRule.SIZE]

    remove(store)
    store.close()

    assert rules(open_store()) == [RemovalRule.SIZE, RemovalRule.SIZE]


GROUNDS = st.builds(
    Grounds,
    rule=st.sampled_from(RemovalRule),
    removed_at_ms=st.integers(-1, 1 << 50),
    is_forced=st.booleans(),
    committed_index=st.integers(-1, 1 << 62),
    covered_index=st.none() | st.integers(-1, 1 << 62),
    held_by_all_index=st.integers(-1, 1 << 62),
)


@given(steps=st.lists(st.tuples(st.integers(1, 1 << 40), GROUNDS), max_size=130))
def test_removals_are_read_as_they_were_written(steps: list[tuple[int, Grounds]]) -> None:
    removals: tuple[Removal, ...] = ()
    begin_index = 0
    for count, grounds in steps:
        begin_index += count
        removals = extended(removals, begin_index, grounds)

    raw = removals_file.encode(removals)

    assert removals_file.decode(raw) == removals
    assert (removals[-1].last_index + 1 if removals else 0) == begin_index


FIRST = Removal(first_index=0, last_index=9, rule=RemovalRule.SIZE)
SECOND = Removal(first_index=10, last_index=19, rule=RemovalRule.AGE)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        removals_file.encode([FIRST])[:-1],
        removals_file.encode([FIRST]).replace(b"Size", b"Edge"),
        removals_file.encode([FIRST, SECOND]).replace(b'"lastIndex":9', b'"lastIndex":8'),
        removals_file.encode([SECOND]),
        removals_file.encode([SECOND, FIRST]),
        removals_file.encode([dataclasses.replace(FIRST, last_index=-1)]),
        b" " * (removals_file.FILE_BYTES_MAX + 1),
    ],
)
def test_an_inconsistent_file_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|gap|bytes"):
        removals_file.decode(raw)


@pytest.mark.parametrize("deaf_to", ["", "files"])
def test_after_a_crash_at_any_moment_every_removed_entry_has_its_rule(
    memory_path: Path, deaf_to: str
) -> None:
    """The control is a disk that ignores syncs of files: there, some removals lose their record."""
    top = memory_path / "store"
    store = filled(LogStore.open(top, **SMALL_SEGMENTS))
    states: list[Tree] = []

    def note(trees: Iterator[Tree]) -> None:
        states.extend(trees)

    with TreeRecorder(top, note, deaf_to).recording():
        begins = {0, remove(store), remove(store, Grounds(rule=RemovalRule.AGE))}
    store.close()
    found, unknown = set(), 0
    for tree in states:
        shutil.rmtree(memory_path / "image", ignore_errors=True)
        write_tree(memory_path / "image", tree)
        again = LogStore.open(memory_path / "image", **SMALL_SEGMENTS)
        found.add(again.begin_index)
        told = again.front.removals
        again.close()
        assert [removal.last_index + 1 for removal in told][-1:] in ([again.begin_index], [])
        assert bool(told) == bool(again.begin_index) or deaf_to
        unknown += any(removal.rule is RemovalRule.UNRECORDED for removal in told)

    assert found == begins
    assert len(states) > 50
    assert bool(unknown) == bool(deaf_to)
