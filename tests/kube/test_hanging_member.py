"""A member whose process hangs, while its kernel takes connections, is noticed by its worker."""

import asyncio
import time
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from dledger_kube.fake_members import members
from dledger_kube.objects import IMAGES, NOW, group, group_body, pod
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.clients.member_http import LEADER_WAIT_S, MemberHttpClient
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.spec.shape import Shape


class ClaimsApi:
    """An API server without volume claims."""

    async def volume_claims(self, namespace: str, name: str) -> list[Any]:
        return []


def worker_with(http: MemberHttpClient) -> GroupWorker:
    context = SimpleNamespace(
        api=ClaimsApi(),
        member_http=http,
        authorized_requests=lambda *_: None,
        canaries=None,
        nodes=Nodes(),
        metrics=OperatorMetrics(clock=time.monotonic),
        node_image=IMAGES,
        clock=time.monotonic,
        now=lambda: NOW,
        random=Random(1),
    )
    return GroupWorker(group_body({"replicas": 1}), cast("Context", context), lambda: None)


async def test_a_member_that_hangs_is_noticed_long_before_its_long_poll_is_over() -> None:
    async with members(1) as ([node], client):
        await node.say(7, "n0")
        worker, followed = worker_with(client), pod(0, ip=node.ip)
        worker._snapshot.followed = FollowResult(pods=(followed,))
        worker._snapshot.reconciled = ReconcileResult(
            generation=1, group=group(replicas=1), shape=Shape.of_new(1)
        )
        worker._polls.sync([followed])

        async def until_it_answers(answers: bool) -> None:
            while [each.answers for each in worker._polls.observations()] != [answers]:
                await worker.loops.wakes["follow"].wait(LEADER_WAIT_S)

        async with asyncio.timeout(LEADER_WAIT_S / 2):
            await until_it_answers(True)
            node.hang()
            await worker._observe()
            await until_it_answers(False)

        node.go_on()
        await worker._polls.stop()
