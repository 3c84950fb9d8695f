"""What a leader spends on looking at as many clients as there may be."""

import time
from typing import Any

from dledger_broker.leading.client_leases import ADOPTED_S, LEAVING_MAX, SWEPT_MAX
from dledger_broker.state.groups import CLIENTS_MAX
from dledger_broker_client.told_clients import Leader
from tools.groups.turns import TURN_S_MAX, slowness

ONE, TWO = ("g", "c1"), ("g", "c2")


def test_a_leader_that_is_deposed_while_it_looks_at_its_clients_has_none_to_look_at() -> None:
    leader = Leader(*(("g", f"c{number}") for number in range(3 * SWEPT_MAX)))
    leader.leases.tick()
    assert leader.leases.is_sweeping

    leader.is_proven = False
    leader.leases.tick()

    assert not leader.leases.is_sweeping


class Counted(dict[Any, Any]):
    """Leases that count how many of them are looked up."""

    looked_up = 0

    def get(self, key: Any, default: Any = None) -> Any:
        """See `dict`."""
        self.looked_up += 1
        return super().get(key, default)

    def items(self) -> Any:
        """See `dict`; a caller may look at all."""
        self.looked_up += len(self)
        return super().items()


def test_one_tick_looks_at_few_of_as_many_clients_as_there_may_be() -> None:
    """It once looked at all of them, twice a second, which held the loop for 6 ms."""
    clients = [("g", f"c{number}") for number in range(CLIENTS_MAX)]
    leader = Leader(*clients)
    leader.leases.tick()
    leases = leader.leases._until_s = Counted(leader.leases._until_s)
    most, left, ticks = 0, 0, 0
    while leader.members:
        assert ticks < 10_000
        leases.looked_up = 0
        leader.now_s += 0.05
        before = len(leader.members)
        leader.leases.tick()
        left = max(left, before - len(leader.members))
        most, ticks = max(most, leases.looked_up), ticks + 1

    assert 0 < most <= SWEPT_MAX
    assert left <= LEAVING_MAX <= 50, "the loop turns between them"
    assert leader.now_s < 2 * ADOPTED_S, "all leave soon after their time is up"


def test_no_step_of_a_new_leader_goes_through_all_clients() -> None:
    """To count 20,000 clients of the log took 13 ms of one turn, each limit of their times 8 ms."""
    leader = Leader(*((f"g{number % 100}", f"c{number}") for number in range(CLIENTS_MAX)))
    clients = leader.clients_by_group()
    leader.clients_by_group = lambda: clients  # type: ignore[method-assign]
    steps = [
        lambda: leader.note("n1", ONE, first=True),
        *[leader.leases.tick] * (CLIENTS_MAX // SWEPT_MAX + 1),
        lambda: leader.note("n1", TWO, first=True),
        lambda: leader.leases.noted("n2", (), (), is_first=True, is_last=True),
    ]
    took_s = []
    for step in steps:
        begun_s = time.thread_time()
        step()
        took_s.append(time.thread_time() - begun_s)

    assert max(took_s) < TURN_S_MAX * slowness()
