"""What a roller waits for and says, against a fake group."""

from random import Random
from typing import Any

from dledger_kube.objects import group
from dledger_kube.rolling_world import RollingWorld
from dledger_operator.behaviours.report.event_recorder import EventNote
from dledger_operator.behaviours.rolls.roll import Roller
from dledger_operator.observed_state import Membership


class Rolling:
    """A roller and its world."""

    def __init__(self, size: int = 3) -> None:
        self.world, self.events = RollingWorld(size=size), list[EventNote]()
        self.roller = Roller(
            self.world, self.world,
            ask=self.world.ask, clock=lambda: self.world.now_s, now=self.world.now,
            random=Random(1), on_event=self.events.append,
        )  # fmt: skip

    async def step(self, **known: Any) -> float | None:
        """Let the roller take a step, then let a minute pass."""
        voters = frozenset(f"n{ordinal}" for ordinal in range(self.world.size))
        values: dict[str, Any] = {"identity": "", "led": True, "scaling": False}
        again_s = await self.roller.run_once(
            group(replicas=self.world.size),
            self.world.wanted,
            Membership(voters=voters),
            **values | known,
        )
        self.world.pass_time(60.0)
        return again_s

    @property
    def reason(self) -> str:
        return self.roller.problem.reason if self.roller.problem else ""


async def test_a_roll_waits_while_the_budget_keeps_the_pod_and_goes_on_afterwards() -> None:
    rolling = Rolling()
    rolling.world.image, rolling.world.budget_used_up = "node:2", True
    await rolling.step()

    assert rolling.reason == "DisruptionBudget"
    assert rolling.world.replaced == []

    rolling.world.budget_used_up = False
    await rolling.step()
    assert rolling.reason == ""
    assert [ordinal for ordinal, _, _ in rolling.world.replaced] == [2]
