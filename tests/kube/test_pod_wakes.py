"""Which loops of a group run when its pods have changed."""

import pytest

from dledger_kube.objects import group_body, pod
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.observed_state import Leader

THREE = (pod(0), pod(1), pod(2))
LEAVING = pod(3, leaving=True)


def settled(*pods: PodView) -> FollowResult:
    leader = Leader(term=7, member_id="n1")
    return FollowResult(pods=pods, leader=leader, leader_pod="flights-1", master_pod="flights-1")


async def scales_after(before: FollowResult, now: FollowResult) -> bool:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    worker._on_settled(before)
    await worker.loops.wakes["scale"].wait(0.01)
    worker._on_settled(now)
    return await worker.loops.wakes["scale"].wait(0.01)


async def test_the_end_of_a_removed_members_pod_wakes_the_loop_that_deletes_its_claim() -> None:
    assert await scales_after(settled(*THREE, LEAVING), settled(*THREE))


@pytest.mark.parametrize("changed", [pod(2), pod(2, ready=False), pod(2, leaving=True)])
async def test_a_pod_that_stays_calls_for_no_step_of_scaling(changed: PodView) -> None:
    assert not await scales_after(settled(*THREE), settled(*THREE[:2], changed))
