"""The ports that tests and benches give to members."""

from itertools import islice

from tools.groups.ports import free_ports


def test_no_port_is_given_to_two_groups_of_one_process() -> None:
    """A member that is still starting has not taken its port yet."""
    first, second = free_ports(), free_ports()

    given = [*islice(first, 3), *islice(second, 3), *islice(first, 3)]

    assert len(set(given)) == len(given)
