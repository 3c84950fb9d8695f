"""Which state a member restores from its snapshots and its log."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_formats.protocol.register import SET
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_node.state_machine.restore import agrees, restore, save_is_due
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

END_INDEX = 199
TERM_2_FROM = 100


def register_at(index: int) -> Register:
    """The state of the log in these tests: key 0 holds the index of the last applied entry."""
    register = Register()
    register.apply([CommittedEntry(index, SET.pack(0, index))])
    return register


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """A log of 200 entries in segments of 73."""
    opened = LogStore.open(tmp_path, segment_size_bytes=4096, index_segment_size_bytes=320)
    opened.append_bodies([SET.pack(0, index) for index in range(TERM_2_FROM)], 1)
    opened.append_bodies([SET.pack(0, index) for index in range(TERM_2_FROM, END_INDEX + 1)], 2)
    target = opened.flush_target()
    opened.flush(target)
    opened.flushed(target)
    opened.save_checkpoint(END_INDEX)
    yield opened
    opened.close()


@pytest.fixture
def snapshots(tmp_path: Path, store: LogStore) -> Snapshots:
    return Snapshots(tmp_path, reserved=5)


def save(snapshots: Snapshots, index: int, term: int) -> None:
    snapshots.save(index, term, register_at(index).dump())


def damage(snapshots: Snapshots, index: int) -> None:
    """Change a snapshot's bytes as a failing disk would: unnoticed until it is loaded."""
    (meta,) = [meta for meta in snapshots.newest_first if meta.last_included_index == index]
    (snapshots.folder_of(meta) / "data").write_bytes(b"rot")


def remove_front(store: LogStore) -> int:
    """Remove the first two segments. Return the index of the entry that is first then."""
    begin_index = store.front.sealed_segments()[1].last_index + 1
    begin = store.front.save_begin(begin_index)
    store.front.delete(store.front.forget_before(begin))
    return begin_index


def restored(snapshots: Snapshots, store: LogStore) -> tuple[int, int, int | None]:
    """Restore; return the applied index and term, and the index that the state contains."""
    applied = restore("register", snapshots, store)
    assert isinstance(applied.machine, Register)
    return applied.index, applied.term, applied.machine.get(0)


def test_without_a_snapshot_the_whole_log_is_applied(snapshots: Snapshots, store: LogStore) -> None:
    assert restored(snapshots, store) == (-1, -1, None)


def test_the_newest_snapshot_is_taken(snapshots: Snapshots, store: LogStore) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 150, 2)

    assert restored(snapshots, store) == (150, 2, 150)


def test_a_damaged_snapshot_gives_way_to_the_one_before(
    snapshots: Snapshots, store: LogStore, caplog: pytest.LogCaptureFixture
) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 150, 2)
    damage(snapshots, 150)

    with caplog.at_level(logging.WARNING):
        assert restored(snapshots, store) == (50, 1, 50)
    assert "discarding the snapshot up to entry 150" in caplog.text
    assert snapshots.newest_index == 50


def test_damaged_snapshots_give_way_to_the_log(
    tmp_path: Path, snapshots: Snapshots, store: LogStore
) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 150, 2)
    damage(snapshots, 50)
    damage(snapshots, 150)

    assert restored(Snapshots(tmp_path, reserved=5), store) == (-1, -1, None)
    assert not list((tmp_path / "snapshot").iterdir())


def test_a_snapshot_that_the_machine_cannot_load_is_damaged(
    snapshots: Snapshots, store: LogStore
) -> None:
    save(snapshots, 50, 1)
    snapshots.save(150, 2, [b"another machine's state"])

    assert restored(snapshots, store) == (50, 1, 50)
    assert snapshots.newest_index == 50


def test_a_snapshot_that_the_log_contradicts_is_not_used(
    snapshots: Snapshots, store: LogStore
) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 150, 1)

    assert restored(snapshots, store) == (50, 1, 50)
    assert snapshots.newest_index == 50


def test_a_snapshot_behind_the_log_is_not_used_while_the_log_is_whole(
    snapshots: Snapshots, store: LogStore
) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 300, 2)

    assert restored(snapshots, store) == (50, 1, 50)
    assert snapshots.newest_index == 300


def test_a_snapshot_behind_the_log_is_used_if_nothing_else_leads_to_a_state(
    snapshots: Snapshots, store: LogStore
) -> None:
    save(snapshots, 50, 1)
    save(snapshots, 300, 2)
    assert remove_front(store) > 51

    assert restored(snapshots, store) == (300, 2, 300)


def test_a_snapshot_right_before_the_log_is_enough(snapshots: Snapshots, store: LogStore) -> None:
    begin_index = remove_front(store)
    save(snapshots, begin_index - 1, 2)

    assert restored(snapshots, store) == (begin_index - 1, 2, begin_index - 1)


@pytest.mark.parametrize("is_sound", [True, False])
def test_entries_that_are_gone_and_in_no_snapshot_make_the_state_unrestorable(
    snapshots: Snapshots, store: LogStore, is_sound: bool
) -> None:
    begin_index = remove_front(store)
    last_index = begin_index - 2 if is_sound else begin_index + 5
    save(snapshots, last_index, 2)
    if not is_sound:
        damage(snapshots, last_index)

    with pytest.raises(
        StoreDamagedError, match=f"begins with entry {begin_index}, and no"
    ) as found:
        restore("register", snapshots, store)

    assert (found.value.damage, found.value.index) == (Damage.BAD_SNAPSHOT, begin_index)
    assert snapshots.newest_index == last_index, "nothing was changed"


def test_a_member_that_never_had_a_snapshot_reports_other_damage(
    snapshots: Snapshots, store: LogStore
) -> None:
    """The group may have had no state until now. Then no member could send this one a snapshot."""
    remove_front(store)

    with pytest.raises(StoreDamagedError, match="unset the state machine") as found:
        restore("register", snapshots, store)

    assert found.value.damage is Damage.NO_SNAPSHOT


def test_the_log_agrees_with_entries_that_it_does_not_hold(store: LogStore) -> None:
    assert agrees(99, 1, store)
    assert agrees(100, 2, store)
    assert not agrees(100, 1, store)
    assert agrees(200, 1, store)
    assert agrees(-1, -1, store)


def test_a_snapshot_is_due_once_enough_entries_were_applied_since_the_last(
    snapshots: Snapshots, store: LogStore
) -> None:
    assert not save_is_due(8, 10, snapshots, store)
    assert save_is_due(9, 10, snapshots, store)
    save(snapshots, 50, 1)
    assert not save_is_due(59, 10, snapshots, store)
    assert save_is_due(60, 10, snapshots, store)


def test_a_snapshot_is_due_at_once_when_the_log_continues_none(
    snapshots: Snapshots, store: LogStore
) -> None:
    begin_index = remove_front(store)
    save(snapshots, begin_index - 1, 1)
    assert not save_is_due(begin_index, 1000, snapshots, store)

    snapshots.discard(begin_index - 1)  # it was found damaged

    assert save_is_due(begin_index, 1000, snapshots, store)
    assert not save_is_due(begin_index - 2, 1000, snapshots, store), "that would not help"
