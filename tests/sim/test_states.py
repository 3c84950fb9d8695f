"""Members with a state: the stand-ins, the judge, and that seeds meet every case."""

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


def test_a_state_reveals_skipped_duplicated_and_swapped_entries() -> None:
    entries = applicable(log_of(*range(1, 30)), 0)
    others = [
        entries[:-1],
        entries[1:],
        [*entries, entries[-1]],
        [*entries[:4], entries[5], entries[4], *entries[6:]],
        [*entries[:4], CommittedEntry(4, entries[5].body), *entries[5:]],
    ]

    assert len({dump(entries), *map(dump, others)}) == 1 + len(others)


def test_a_state_does_not_depend_on_the_batches() -> None:
    entries = applicable(log_of(*range(1, 30)), 0)
    state = SimState()
    for entry in entries:
        state.apply([entry])

    assert b"".join(state.dump()) == dump(entries)


def test_first_entries_of_leaders_are_not_applied() -> None:
    assert [entry.index for entry in applicable(log_of(-1, 5, -2, 6), 0)] == [1, 3]


def snapshots_with(disk: SimDisk, *indexes: int, reserved: int = 2) -> SimSnapshots:
    snapshots = SimSnapshots(disk, reserved)
    for index in indexes:
        snapshots.save(kept_snapshot(index, 1, b"state"), ())
    return snapshots


def test_the_newest_snapshots_and_those_in_use_by_peers_are_kept() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    snapshots.save(kept_snapshot(9, 1, b"state"), {3})

    assert sorted(disk.snapshots) == [3, 6, 9]
    assert not snapshots.save(kept_snapshot(9, 1, b"state"), ()), (
        "the disk has this snapshot already"
    )
    assert snapshots.save(kept_snapshot(12, 1, b"state"), ())
    assert sorted(disk.snapshots) == [9, 12]


def test_a_full_disk_keeps_only_the_newest_snapshot() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    disk.full = True

    with pytest.raises(StoreFullError):
        snapshots.save(kept_snapshot(9, 1, b"state"), ())
    assert sorted(disk.snapshots) == [6]


def test_a_rotten_snapshot_is_found_at_a_start_and_before_it_is_sent() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3, 6)
    newest = snapshots.newest_first[0]
    disk.hard_state = replace(disk.hard_state, joining=False)
    assert disk.has_memory
    disk.rot_newest_snapshot()

    assert not disk.has_memory, "an administrator may have to empty this disk"
    assert SimSnapshots(disk, 2).damaged.keys() == {6}
    assert not snapshots.is_sound(newest)
    assert (snapshots.newest_index, snapshots.damaged.keys()) == (3, {6})
    assert snapshots.is_sound(snapshots.newest_first[0])
    snapshots.save(kept_snapshot(9, 1, b"state"), ())
    assert sorted(disk.snapshots) == [3, 9]


def test_an_emptied_disk_has_no_snapshots_and_a_copy_has_its_own() -> None:
    disk = SimDisk()
    snapshots = snapshots_with(disk, 3)
    copy = disk.copy()
    snapshots.save(kept_snapshot(6, 1, b"state"), ())
    disk.restore(copy, 0, log_alone=False)
    assert sorted(disk.snapshots) == [3]
    disk.lose(0.5)
    assert sorted(disk.snapshots) == [3], "damage to the log does not affect snapshots"
    disk.lose(None)
    assert not disk.snapshots


# -- the judge -------------------------------------------------------------------------------------


class Judged:
    """A judge of member n0, whose log has ten entries, eight of them committed."""

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


def test_the_judge_accepts_a_correct_state() -> None:
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
def test_the_judge_rejects_a_wrong_state(rule: str, what: Callable[[Judged], None]) -> None:
    judged = Judged()
    judged.disk.snapshots[4] = kept_snapshot(4, 1, judged.dump(5))

    with pytest.raises(ViolationError, match=rule):
        what(judged)


# -- seeds -----------------------------------------------------------------------------------------


def test_seeds_with_a_state_reach_every_event_of_a_state() -> None:
    task = campaign.Task(seeds=SEEDS, event_count=EVENT_COUNT, covered=False, states_only=True)
    totals = campaign.run_task(task)

    assert not totals.failures
    assert totals.seed_count == sum(map(keeps_state, SEEDS))
    assert {name for name, count in totals.state_counts.items() if count > 0} == WHAT_HAPPENS
    assert all(f" {name}=" in totals.told() for name in WHAT_HAPPENS)


def test_a_seed_without_a_state_counts_no_events_of_states() -> None:
    seed = next(seed for seed in SEEDS if not keeps_state(seed))

    assert not simulate(seed, EVENT_COUNT).state_counts


def test_moments_of_members_with_a_state_do_not_change_other_draws() -> None:
    """A further moment would change the draws of every seed without a state."""
    assert Moment.FETCHES not in drawing.ANY_MOMENT
    assert set(drawing.ANY_MOMENT) == set(Moment) - {Moment.FETCHES}


def test_members_keep_a_state_in_one_seed_of_eight() -> None:
    share = sum(map(keeps_state, range(4000))) / 4000

    assert 0.1 < share < 0.15
