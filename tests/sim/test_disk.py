"""What the simulated disk may forget, and what it may not."""

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
    """Entries 1 and 2 are durable; 3, 4 and 5 are not."""
    disk = SimDisk()
    write(disk, 1, 1, 2)
    flush(disk)
    write(disk, 1, 3, 4, 5)
    return disk


@pytest.mark.parametrize(("keep", "left"), [(Keep.EVERYTHING, 5), (Keep.NOTHING, 2)])
def test_a_kill_keeps_the_page_cache_and_a_bad_power_cut_nothing(keep: Keep, left: int) -> None:
    disk = flushed_and_more()
    disk.crash(keep, 1)

    assert len(disk.durable) == left
    assert disk.cached == disk.durable


def test_a_power_cut_keeps_what_was_flushed_and_any_first_part_of_the_rest() -> None:
    lengths = set()
    for chance_seed in range(CUTS):
        disk = flushed_and_more()
        disk.crash(Keep.SOMETHING, chance_seed)
        assert bodies(disk) == [1, 2, 3, 4, 5][: len(disk.durable)]
        lengths.add(len(disk.durable))

    assert lengths == {2, 3, 4, 5}


def test_a_power_cut_in_a_rewritten_tail_leaves_one_history_or_the_other() -> None:
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


def test_a_flush_that_fails_loses_what_it_should_have_kept() -> None:
    disk = flushed_and_more()
    disk.begin_flush()
    disk.fail_flush()
    disk.crash(Keep.EVERYTHING, 1)

    assert bodies(disk) == [1, 2]


def test_a_truncation_overtakes_the_flush_that_began_before_it() -> None:
    disk = flushed_and_more()
    disk.begin_flush()
    disk.truncate(3)
    write(disk, 2, 9)

    assert disk.finish_flush() == (2, 1)
