"""What the simulated disk may lose, and what it must keep."""

import pytest

from dledger_sim.group.disk import Keep, SimDisk, chained

CUTS = 300


def write(disk: SimDisk, term: int, *bodies: int) -> None:
    for body in bodies:
        disk.append(chained(disk.cached, term, body))


def flush(disk: SimDisk) -> None:
    disk.begin_flush()
    disk.finish_flush()


def bodies(disk: SimDisk) -> list[int]:
    return [entry.body for entry in disk.durable]


def flushed_and_more() -> SimDisk:
    """Return a disk with durable entries 1 and 2, and unflushed entries 3, 4 and 5."""
    disk = SimDisk()
    write(disk, 1, 1, 2)
    flush(disk)
    write(disk, 1, 3, 4, 5)
    return disk


@pytest.mark.parametrize(("keep", "left"), [(Keep.EVERYTHING, 5), (Keep.NOTHING, 2)])
def test_a_kill_keeps_unflushed_entries_and_a_bad_power_cut_loses_them(
    keep: Keep, left: int
) -> None:
    disk = flushed_and_more()
    disk.crash(keep, 1)

    assert len(disk.durable) == left
    assert disk.cached == disk.durable


def test_a_power_cut_keeps_flushed_entries_and_any_prefix_of_the_others() -> None:
    lengths = set()
    for chance_seed in range(CUTS):
        disk = flushed_and_more()
        disk.crash(Keep.SOMETHING, chance_seed)
        assert bodies(disk) == [1, 2, 3, 4, 5][: len(disk.durable)]
        lengths.add(len(disk.durable))

    assert lengths == {2, 3, 4, 5}


def test_a_power_cut_in_a_rewritten_tail_leaves_the_old_or_the_new_tail() -> None:
    found = set()
    for chance_seed in range(CUTS):
        disk = SimDisk()
        write(disk, 1, 1, 2, 3)
        flush(disk)
        disk.truncate(1)
        write(disk, 2, 7, 8)
        disk.crash(Keep.SOMETHING, chance_seed)
        found.add(tuple(bodies(disk)))

    assert found == {(1,), (1, 2), (1, 2, 3), (1, 7), (1, 7, 8)}


def test_a_failed_flush_loses_its_entries() -> None:
    disk = flushed_and_more()
    disk.begin_flush()
    disk.fail_flush()
    disk.crash(Keep.EVERYTHING, 1)

    assert bodies(disk) == [1, 2]


def test_a_flush_does_not_report_entries_that_were_truncated_meanwhile() -> None:
    disk = flushed_and_more()
    disk.begin_flush()
    disk.truncate(3)
    write(disk, 2, 9)

    assert disk.finish_flush() == (2, 1)
