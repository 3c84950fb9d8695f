"""The ports that tests and benches give to members."""

from itertools import islice

from tools.groups.ports import SLICES, _ports_of, free_ports


def test_no_port_is_given_to_two_groups_of_one_process() -> None:
    """A member that is still starting has not taken its port yet."""
    first, second = free_ports(), free_ports()

    given = [*islice(first, 3), *islice(second, 3), *islice(first, 3)]

    assert len(set(given)) == len(given)


def test_two_processes_share_no_port_also_if_their_ids_have_the_same_remainder() -> None:
    """A port of a member that was killed looks free, and another process must not take it."""
    one, other = (_ports_of.__wrapped__(process_id) for process_id in (7, 7 + SLICES))

    given = [*islice(one, 300), *islice(other, 300)]

    assert not set(given[:300]) & set(given[300:])
