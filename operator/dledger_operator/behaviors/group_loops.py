"""Runs the loops of one group: `follow` always, the others only while asked to act.

Each loop is a task of its own, so that a member that does not answer cannot delay following the
leader. While pods are to be relabeled, the others wait for a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.loops import GROUP_PACES, Wake, repeat

Run = Callable[[], Awaitable[float | None]]

LEADER_FIRST_S_MAX: Final = 1.0
"""How long loops wait for the labels of a new leader, since there may never be one."""


class LeaderFirst:
    """Makes loops wait while pods are to be relabeled, or the leader is lost.

    After a change of the leader, each loop has something to do. Its requests would compete with
    those that move the Service, for the API server and for this process.
    """

    def __init__(self) -> None:
        self._were_right = False
        self._free = asyncio.Event()
        self._free.set()
        self._timer: asyncio.TimerHandle | None = None

    def labels(self, *, right: bool) -> None:
        """Note whether there is a leader and no label needs a change."""
        if self._were_right and not right:
            self._free.clear()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LEADER_FIRST_S_MAX, self._free.set)
        elif right:
            if self._timer is not None:
                self._timer.cancel()
            self._free.set()
        self._were_right = right

    async def run(self, run: Run) -> float | None:
        """Run once the labels are right, or `LEADER_FIRST_S_MAX` after they became wrong."""
        await self._free.wait()
        return await run()


class GroupLoops:
    """The loops of one group, each a task of its own."""

    def __init__(self, context: Context, what: str) -> None:
        """Create loops that stand by; `what` names the group in log lines."""
        self.wakes = {loop: Wake() for loop in GROUP_PACES}
        self.leader_first = LeaderFirst()
        self.epoch: object = None
        """The argument of the last `act`. A different one means that another process may have acted
        in between.
        """
        self.acts = False
        self._context = context
        self._what = what
        self._asked = asyncio.Event()
        """Set when `acts` has changed."""
        self._acting: list[asyncio.Task[None]] = []
        self._ending: list[asyncio.Task[None]] = []
        """The tasks of loops that were cancelled."""

    def act(self, epoch: object) -> None:
        """Run all loops from now on."""
        self.epoch, self.acts = epoch, True
        self._asked.set()

    def stand_by(self) -> None:
        """Only follow the leader from now on, because another process does the rest.

        The other loops are cancelled at once, in the middle of their turns: one that goes on only
        now would still act, or export metrics of the group that nobody would remove.
        """
        self.acts = False
        for task in self._acting:
            task.cancel()
        self._ending, self._acting = [*self._ending, *self._acting], []
        self._asked.set()

    def wake(self, *loops: str) -> None:
        """Let these loops run now."""
        for loop in loops:
            self.wakes[loop].set()

    async def run(self, follow: Run, others: Mapping[str, Run]) -> None:
        """Run until cancelled."""
        with self._context.phases.for_a_group() as phase_s:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._repeat("follow", follow, phase_s))
                while True:
                    self._asked.clear()
                    await self._wait_for_the_end()
                    if self.acts and not self._acting:
                        self._acting = [
                            tasks.create_task(
                                self._repeat(loop, partial(self.leader_first.run, run), phase_s)
                            )
                            for loop, run in others.items()
                        ]
                    await self._asked.wait()

    async def _repeat(self, loop: str, run: Run, phase_s: float) -> None:
        await repeat(
            run,
            what=f"{self._what}: {loop}",
            wake=self.wakes[loop],
            pace=GROUP_PACES[loop],
            random=self._context.random,
            on_failure=partial(self._context.count_failure, loop),
            phase_s=phase_s,
        )

    async def _wait_for_the_end(self) -> None:
        """Wait until the cancelled loops have ended."""
        ending, self._ending = self._ending, []
        if not ending:
            return
        await asyncio.gather(*ending, return_exceptions=True)
        for loop, wake in self.wakes.items():
            if loop != "follow":
                wake.busy_since_s = None
