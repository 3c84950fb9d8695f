"""The other loops of a group let the pods be relabeled first after a change of the leader."""

import asyncio
import contextlib

import pytest

from dledger_kube.objects import group_body, pod
from dledger_kube.worker_context import unconnected
from dledger_operator.behaviors import group_loops
from dledger_operator.behaviors.group_loops import GroupLoops, LeaderFirst
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.leader.role_decision import Decision, RolePatch
from dledger_operator.observed_state import Leader

WAIT_S = 10.0
TICKS = 20
"""Rounds of the event loop in which an unwanted run would start."""


class Others:
    """A run of another loop that was asked for at the beginning."""

    def __init__(self, leader_first: LeaderFirst) -> None:
        self.task = asyncio.create_task(leader_first.run(self._run))

    async def _run(self) -> float | None:
        return 7.0

    async def ran_at_once(self) -> bool:
        for _ in range(TICKS):
            await asyncio.sleep(0)
        return self.task.done()

    async def result(self) -> float | None:
        async with asyncio.timeout(WAIT_S):
            return await self.task


async def test_a_group_that_has_no_leader_yet_holds_nothing_up() -> None:
    leader_first = LeaderFirst()
    leader_first.labels(right=False)

    assert await Others(leader_first).ran_at_once()


async def test_loops_run_while_the_labels_are_right() -> None:
    leader_first = LeaderFirst()
    leader_first.labels(right=True)

    assert await Others(leader_first).ran_at_once()


async def test_loops_wait_from_the_loss_of_a_leader_until_the_next_one_is_labeled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", WAIT_S)
    leader_first = LeaderFirst()
    leader_first.labels(right=True)
    for _ in range(3):
        leader_first.labels(right=False)
    others = Others(leader_first)

    assert not await others.ran_at_once()
    leader_first.labels(right=True)
    assert await others.ran_at_once()
    assert await others.result() == 7.0


async def test_loops_wait_only_for_a_moment_if_there_is_no_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", 0.01)
    leader_first = LeaderFirst()
    leader_first.labels(right=True)
    leader_first.labels(right=False)
    assert await Others(leader_first).result() == 7.0

    leader_first.labels(right=False)
    assert await Others(leader_first).ran_at_once()


async def test_each_loss_of_a_leader_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the time after an earlier loss lets nothing run after a later one."""
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", 0.0)
    leader_first = LeaderFirst()
    for right in (True, False, True):
        leader_first.labels(right=right)
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", WAIT_S)
    leader_first.labels(right=False)
    others = Others(leader_first)

    assert not await others.ran_at_once()
    leader_first.labels(right=True)
    assert await others.result() == 7.0


async def test_only_following_the_leader_runs_while_labels_are_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", WAIT_S)
    ran, followed, reported = list[str](), asyncio.Event(), asyncio.Event()

    async def follow() -> None:
        ran.append("follow")
        followed.set()

    async def report() -> None:
        ran.append("report")
        reported.set()

    loops = GroupLoops(unconnected(), "air/flights")
    for right in (True, False):
        loops.leader_first.labels(right=right)
    loops.act(None)
    running = asyncio.create_task(loops.run(follow, {"report": report}))
    async with asyncio.timeout(WAIT_S):
        await followed.wait()
        for _ in range(TICKS):
            await asyncio.sleep(0)
        assert ran == ["follow"]
        loops.leader_first.labels(right=True)
        await reported.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_worker_lets_its_loops_wait_by_what_following_the_leader_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_loops, "LEADER_FIRST_S_MAX", WAIT_S)
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    leader = Leader(term=3, member_id="n1")
    patch = RolePatch(pod=pod(1), role="master", term=3)

    async def holds_up(decided: Leader | None, *patches: RolePatch) -> bool:
        worker._on_decision(Decision(leader=decided, disputed=False, patches=patches))
        return not await Others(worker.loops.leader_first).ran_at_once()

    assert not await holds_up(leader)
    assert await holds_up(None)
    assert await holds_up(leader, patch)
    assert not await holds_up(leader)
