"""Members that keep a state: what the stand-ins do, that the judge judges, and that lives meet it
all."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dledger_node.errors import StoreFullError
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.restore import Applied
from dledger_sim.group.disk import Entry, SimDisk, chained
from dledger_sim.group.moments import Moment
from dledger_sim.group.snapshots import (
    SimSnapshots,
    SimState,
    applicable,
    kept_snapshot,
)
from dledger_sim.judges.state_rules import StateRules
from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs import campaign, drawing
from dledger_sim.runs.seeds import keeps_state
from dledger_sim.runs.simulation import simulate

EVENT_COUNT = 1500
SEEDS = range(400)
WHAT_HAPPENS = {
    "fronts_removed", "installs_begun", "installs_finished", "installs_resumed", "logs_begun_anew",
    "restarts_from_snapshot", "snapshots",
}  # fmt: skip


def log_of(*bodies: int) -> list[Entry]:
    log: list[Entry] = []
    for body in bodies:
        log.append(chained(log, 1, body))
    return log


def dump(entries: list[CommittedEntry]) -> bytes:
    state = SimState()
    state.apply(entries)
    return b"".join(state.dump())


# -- the stand-ins ---------------------------------------------------------------------------------


def test_a_state_tells_what_was_left_out_doubled_or_exchanged() -> None:
    entries = applicable(log_of(*range(1, 30)), 0)
    others = [
        entries[:-1],
        entries[1:],
        [*entries, entries[-1]],
        [*entries[:4], entries[5], entries[4], *entries[6:]],
        [*entries[:4], CommittedEntry(4, entries[5].body), *entries[5:]],
    ]

    assert len({dump(entries), *map(dump, others)}) == 1 + len(others)


def test_a_state_is_the_same_in_whatever_batches_it_came() -> None:
    entries = applicable(log_of(*range(1, 30)), 0)
    state = SimState()
    for entry in entries:
        state.apply([entry])

    assert b"".join(state.dump()) == dump(entries)


def test_what_leaders_write_for_themselves_is_not_applied() -> None:
    assert [entry.index for entry in applicable(log_of(-1, 5, -2, 6), 0)] == [1, 3]


def snapshots_with(disk: SimDisk, *indexes: int, reserved: int = 2) -> SimSnapshots:
    snapshots = SimSnapshots(disk, reserved)
    for index in indexes:
        snapshots.save(kept_snapshot(index, 1, b"state"), ())
    return snapshots


def test_the_newest_snapshots_are_kept_and_those_that_are_lent() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    snapshots.save(kept_snapshot(9, 1, b"state"), {3})

    assert sorted(disk.snapshots) == [3, 6, 9]
    assert not snapshots.save(kept_snapshot(9, 1, b"state"), ()), "there is a newer one"
    assert snapshots.save(kept_snapshot(12, 1, b"state"), ())
    assert sorted(disk.snapshots) == [9, 12]


def test_a_full_disk_keeps_the_newest_alone() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    disk.full = True

    with pytest.raises(StoreFullError):
        snapshots.save(kept_snapshot(9, 1, b"state"), ())
    assert sorted(disk.snapshots) == [6]


def test_one_that_has_rotted_is_found_when_its_member_starts_and_when_it_is_lent() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    newest = snapshots.newest_first[0]
    disk.hard_state = replace(disk.hard_state, joining=False)
    assert disk.has_memory
    disk.rot_newest_snapshot()

    assert not disk.has_memory, "its member may have to be emptied"
    assert SimSnapshots(disk, 2).damaged.keys() == {6}
    assert not snapshots.is_sound(newest)
    assert (snapshots.newest_index, snapshots.damaged.keys()) == (3, {6})
    assert snapshots.is_sound(snapshots.newest_first[0])
    snapshots.save(kept_snapshot(9, 1, b"state"), ())
    assert sorted(disk.snapshots) == [3, 9]


def test_an_empty_disk_has_no_snapshots_and_a_copy_has_those_of_its_time() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3)
    copy = disk.copy()
    snapshots.save(kept_snapshot(6, 1, b"state"), ())
    disk.restore(copy, 0, log_alone=False)
    assert sorted(disk.snapshots) == [3]
    disk.lose(0.5)
    assert sorted(disk.snapshots) == [3], "damage to a log is none to them"
    disk.lose(None)
    assert not disk.snapshots


# -- the judge -------------------------------------------------------------------------------------


class Judged:
    """Member n0, of whose ten entries the first eight are committed."""

    def __init__(self) -> None:
        self.log = log_of(*range(1, 11))
        self.disk = SimDisk(durable=self.log, cached=list(self.log))
        self.rules = StateRules({"n0": self.disk}, self.log[:8])

    def dump(self, count: int) -> bytes:
        return dump(applicable(self.log[:count], 0))

    def begins(self, count: int, begin_index: int) -> None:
        machine = SimState()
        machine.apply(applicable(self.log[:count], 0))
        self.rules.begins("n0", Applied(machine=machine, index=count - 1, term=1), begin_index)


def test_a_judge_finds_nothing_in_what_is_well() -> None:
    judged = Judged()
    judged.rules.has("n0", 7, [judged.dump(8)])
    judged.rules.has("n0", -1, [judged.dump(0)])
    judged.rules.keeps("n0", kept_snapshot(4, 1, judged.dump(5)))
    judged.disk.snapshots[4] = kept_snapshot(4, 1, judged.dump(5))
    judged.rules.removes_front("n0", 5)
    judged.rules.replaces_log("n0", 5)
    judged.begins(5, begin_index=5)


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("only committed entries are applied", lambda j: j.rules.has("n0", 8, [j.dump(9)])),
        (
            "a state matches the log up to its applied index",
            lambda j: j.rules.has("n0", 5, [j.dump(5)]),
        ),
        (
            "a state matches the log up to its applied index",
            lambda j: j.rules.keeps("n0", kept_snapshot(4, 1, j.dump(6))),
        ),
        (
            "a state matches the log up to its applied index",
            lambda j: j.rules.keeps("n0", kept_snapshot(4, 2, j.dump(5))),
        ),
        ("there is no gap between a state and its log", lambda j: j.begins(5, begin_index=6)),
        ("there is no gap between a state and its log", lambda j: j.rules.replaces_log("n0", 6)),
        (
            "snapshots include the entries removed from the front",
            lambda j: j.rules.removes_front("n0", 6),
        ),
    ],
)
def test_a_judge_finds_what_is_not_well(rule: str, what: Callable[[Judged], None]) -> None:
    judged = Judged()
    judged.disk.snapshots[4] = kept_snapshot(4, 1, judged.dump(5))

    with pytest.raises(ViolationError, match=rule):
        what(judged)


# -- lives -----------------------------------------------------------------------------------------


def test_lives_with_a_state_meet_all_that_can_happen_to_it() -> None:
    task = campaign.Task(seeds=SEEDS, event_count=EVENT_COUNT, covered=False, states_only=True)
    totals = campaign.run_task(task)

    assert not totals.failures
    assert totals.seed_count == sum(map(keeps_state, SEEDS))
    assert {name for name, count in totals.state_counts.items() if count > 0} == WHAT_HAPPENS
    assert all(f" {name}=" in totals.told() for name in WHAT_HAPPENS)


def test_a_life_without_a_state_knows_nothing_of_it() -> None:
    seed = next(seed for seed in SEEDS if not keeps_state(seed))

    assert not simulate(seed, EVENT_COUNT).state_counts


def test_what_only_lives_with_a_state_know_changes_no_other_draw() -> None:
    """Or each seed without one would be another than before."""
    assert Moment.FETCHES not in drawing.ANY_MOMENT
    assert set(drawing.ANY_MOMENT) == set(Moment) - {Moment.FETCHES}


def test_one_seed_in_eight_keeps_a_state() -> None:
    share = sum(map(keeps_state, range(4000))) / 4000

    assert 0.1 < share < 0.15
