"""The event loop of a simulated broker: nothing of a member runs after its death."""

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from dledger_sim.broker.loop import MemberLoop
from dledger_sim.broker.wires import Wires


class World:
    """A group in which no time passes."""

    now_us = 0
    event_count = 0

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan nothing."""

    def when_awake(self, member_id: str, life: int, action: Callable[[], None]) -> None:
        """Do nothing."""

    def when_up(self, member_id: str, action: Callable[[], None]) -> None:
        """Do nothing."""

    def thread_us(self, member_id: str) -> int:
        """Return no time."""
        return 0


async def coroutine() -> None:
    """End at once."""


@contextlib.contextmanager
def no_coroutine_is_left_unawaited() -> Iterator[None]:
    """Fail if the block leaves a coroutine that was never awaited. A collection also warns of what
    earlier tests left, such as an open socket; that is collected first, and does not count.
    """
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    told = [str(each.message) for each in warned]
    assert not [each for each in told if "coroutine" in each], told


def test_a_task_that_never_began_ends_with_its_member_without_a_warning() -> None:
    loop = MemberLoop("n0", 1, World(), Wires(World(), {}), 1)

    with no_coroutine_is_left_unawaited():
        with loop.running():
            loop.create_task(coroutine())
        loop.close()


def test_a_task_of_a_dead_member_never_begins_and_warns_of_nothing() -> None:
    loop = MemberLoop("n0", 1, World(), Wires(World(), {}), 1)
    loop.close()

    with no_coroutine_is_left_unawaited(), loop.running():
        loop.create_task(coroutine())
