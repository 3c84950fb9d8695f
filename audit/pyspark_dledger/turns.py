"""The order in which members are read."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_turns(tasks: Mapping[str, Sequence[T]], leaders: frozenset[str]) -> list[T]:
    """Return the tasks of all members: followers in turns, and then the leader.

    So no follower is read by all workers at once, and the leader, which also serves the clients, is
    read last. Spark starts tasks in this order.
    """
    followers = [each for member, each in tasks.items() if member not in leaders]
    rounds = zip_longest(*followers)
    first = [task for task in chain.from_iterable(rounds) if task is not None]
    return [*first, *(task for member in tasks if member in leaders for task in tasks[member])]
