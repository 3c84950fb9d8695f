"""The simulated disk with rotten log entries, and the judge that inspects its reads."""

import pytest

from dledger_node.errors import StoreDamagedError
from dledger_node.raft.ready import HardState
from dledger_sim.group.disk import Entry, chained
from dledger_sim.group.rotting_disk import MARGIN_ENTRIES, SEGMENT_ENTRIES, RottingDisk
from dledger_sim.judges.rot_rules import RotRules
from dledger_sim.judges.violation import ViolationError

ENTRY_COUNT = 12
OLD = 4
"""An entry far before the end of the log."""


def opened_disk(count: int = ENTRY_COUNT) -> RottingDisk:
    """Return a disk whose member has restarted with `count` entries."""
    log: list[Entry] = []
    for body in range(1, count + 1):
        log.append(chained(log, 1, body))
    memory = HardState(term=1, vote_for=None)
    disk = RottingDisk(hard_state=memory, durable=log, cached=list(log), checkpoint_end=count - 1)
    disk.open()
    return disk


def append(disk: RottingDisk, count: int) -> None:
    for body in range(100, 100 + count):
        disk.append(chained(disk.cached, 1, body))
    disk.begin_flush()
    disk.finish_flush()


def test_a_read_of_a_rotten_entry_raises_an_error() -> None:
    disk = opened_disk()
    disk.rot(OLD, OLD + 1)

    assert disk.read(0, OLD) == disk.durable[:OLD]
    assert not disk.damaged
    with pytest.raises(StoreDamagedError, match="entry 4 has rotted"):
        disk.read(0, OLD + 1)
    assert disk.damaged


def test_entries_that_were_written_or_verified_since_the_start_do_not_rot() -> None:
    disk = opened_disk()
    append(disk, 3)
    disk.save_checkpoint(ENTRY_COUNT + 2)
    first_seen = ENTRY_COUNT - MARGIN_ENTRIES
    disk.rot(first_seen, ENTRY_COUNT + 3)

    assert len(disk.read(first_seen, ENTRY_COUNT + 3)) == MARGIN_ENTRIES + 3


def test_entries_after_the_checkpoint_cannot_rot() -> None:
    disk = opened_disk()
    append(disk, 1)

    with pytest.raises(AssertionError):
        disk.rot(ENTRY_COUNT, ENTRY_COUNT + 1)
    disk.save_checkpoint(ENTRY_COUNT)
    disk.rot(ENTRY_COUNT, ENTRY_COUNT + 1)


def test_setting_aside_keeps_the_segments_before_the_damage_and_the_term() -> None:
    disk = opened_disk()
    before, hard_state = disk.durable, disk.hard_state
    disk.rot(7, 9)
    disk.set_aside()

    assert disk.durable == before[: 7 // SEGMENT_ENTRIES * SEGMENT_ENTRIES]
    assert disk.lost == [before], "the member had confirmed this log"
    assert (disk.hard_state.term, disk.hard_state.joining) == (hard_state.term, True)
    assert not disk.rotten


@pytest.mark.parametrize("what", ["truncated", "replaced", "removed from the front", "lost"])
def test_removed_entries_are_no_longer_rotten(what: str) -> None:
    disk = opened_disk()
    disk.rot(OLD, OLD + 2)
    assert not disk.has_memory
    match what:
        case "truncated":
            disk.truncate(OLD)
        case "replaced":
            disk.replace(disk.durable[:3])
        case "removed from the front":
            disk.remove_before(OLD + 2)
        case _:
            disk.lose(None)

    assert not disk.rotten
    assert disk.has_memory == (what != "lost")


def test_the_judge_finds_an_entry_that_differs_from_the_written_one() -> None:
    disk = opened_disk()
    rules = RotRules({"n0": disk})
    disk.rot(OLD, OLD + 1)

    rules.serves("n0", 0, disk.durable)
    with pytest.raises(ViolationError, match="a rotten entry is never served"):
        rules.serves("n0", OLD, [disk.rotten[OLD]])
