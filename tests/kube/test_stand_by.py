"""The loops of a group end at once when another process acts for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from dledger_kube.worker_context import unconnected
from dledger_operator.behaviors.group_loops import GroupLoops
from dledger_sim.simulated_loop import SimulatedLoop


def in_simulated_time(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(work)


class Loops:
    """The loops of a group, of which one counts its turns."""

    def __init__(self) -> None:
        self.turns = 0
        self.loops = GroupLoops(unconnected(), "air/flights")
        self._task = asyncio.create_task(self.loops.run(self._follow, {"report": self._report}))

    async def act(self) -> None:
        """Act, until the loop waits for its next turn."""
        self.loops.act(1)
        await asyncio.sleep(1)
        assert self.turns == 1

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        """Do nothing."""

    async def _report(self) -> None:
        self.turns += 1


@pytest.mark.parametrize("wakes_first", [True, False])
def test_a_loop_that_is_woken_as_the_process_ceases_to_act_has_no_further_turn(
    wakes_first: bool,
) -> None:
    """It would export metrics of the group, which nobody would remove."""

    async def work() -> None:
        group = Loops()
        await group.act()

        if wakes_first:
            group.loops.wake("report")
        group.loops.stand_by()
        group.loops.wake("report")
        await asyncio.sleep(60)

        assert group.turns == 1
        await group.stop()

    in_simulated_time(work())


def test_a_process_that_acts_again_at_once_starts_the_loops_again() -> None:
    async def work() -> None:
        group = Loops()
        await group.act()

        group.loops.stand_by()
        group.loops.act(2)
        await asyncio.sleep(1)

        assert group.turns == 2
        await group.stop()

    in_simulated_time(work())
