"""A spec that cannot be applied is named in the group's status, also by a process that has never
applied it. Otherwise the status of the process before would stand, whatever happens to the group.
"""

import itertools
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_kube.applied import Applied
from dledger_kube.objects import NOW, group_body, membership, observed_group, pod
from dledger_kube.worker_context import unconnected
from dledger_operator import names
from dledger_operator.api_objects import ChildView, Manifest
from dledger_operator.behaviors.children.reconcile_failed import (
    MESSAGE_LENGTH_MAX,
    problem_of,
)
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.lasting_failure import LASTS_S
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.report.group_reporter import GATHERING_S_MAX
from dledger_operator.clients.errors import (
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from dledger_operator.conditions import progressing
from dledger_operator.problem import Problem

WEBHOOK = UnavailableError("apply Service air/flights-master: failed calling webhook")
FORBIDDEN = RefusedError("get Service air/flights-master: forbidden")
READY = {
    "type": "Ready", "status": "True", "reason": "LeaderElected", "message": "n1 leads",
    "lastTransitionTime": names.timestamp(NOW),
}  # fmt: skip


class Api(Applied):
    """An API server that answers some requests with errors."""

    def __init__(self) -> None:
        super().__init__()
        self.apply_raises: KubeError | None = None
        self.child_raises: KubeError | None = None
        self.is_away = False
        self.statuses: list[Manifest] = []

    async def apply(self, manifest: Manifest) -> None:
        if self.apply_raises:
            raise self.apply_raises
        await super().apply(manifest)

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        if self.child_raises:
            raise self.child_raises
        return await super().child(kind, namespace, name)

    async def group(self, namespace: str, name: str) -> dict[str, Any]:
        if self.is_away:
            raise UnavailableError("get DLedgerGroup air/flights: no answer")
        return await super().group(namespace, name)

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        self.statuses.append(status)


class Operator:
    """A process that has just begun to act for a group that an earlier one called Ready, and has
    found no pods.
    """

    def __init__(self) -> None:
        self.now_s = 100.0
        self.api = Api()
        context = cast("Any", unconnected(self.api))
        context.clock = lambda: self.now_s
        context.events = SimpleNamespace(record=self._record)
        self.worker = GroupWorker(self._body(4), context, lambda: None)
        self.worker._snapshot.membership = membership()
        assert self.worker._snapshot.group is not None
        self.worker._snapshot.followed = FollowResult(roles=self.worker._snapshot.group.roles)

    async def _record(self, *_: object) -> None:
        """Record no Event."""

    def _body(self, generation: int) -> dict[str, Any]:
        body = group_body() | {"status": {"conditions": [READY]}}
        return body | {"metadata": body["metadata"] | {"generation": generation}}

    def change_spec(self) -> None:
        """Let the watch tell of another generation."""
        body = self._body(5)
        self.api.live = body["metadata"]
        self.worker.changed(body)

    async def fails(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        with pytest.raises(KubeError):
            await self.worker._reconcile()

    async def ready(self) -> Mapping[str, Any]:
        """Return the condition `Ready` after the next report."""
        self.now_s += GATHERING_S_MAX + 1
        await self.worker._report()
        conditions = self.api.statuses[-1]["conditions"] if self.api.statuses else [READY]
        return next(each for each in conditions if each["type"] == "Ready")


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.mark.parametrize(
    ("fault", "error"), [("apply_raises", WEBHOOK), ("child_raises", FORBIDDEN)]
)
async def test_a_new_process_that_cannot_reconcile_does_not_leave_the_old_status(
    operator: Operator, fault: str, error: KubeError
) -> None:
    setattr(operator.api, fault, error)
    await operator.fails()
    await operator.fails(after_s=LASTS_S)

    for loop in ("observe", "place", "report"):
        assert await operator.worker.loops.wakes[loop].wait(0.01)
    ready = await operator.ready()
    assert (ready["status"], ready["reason"]) == ("False", "ReconcileFailed")
    assert str(error) in ready["message"]
    assert ready["observedGeneration"] == 4
    conditions = {each["type"]: each for each in operator.api.statuses[-1]["conditions"]}
    assert conditions["LeaderElected"]["status"] == "False", "it is judged now"


@pytest.mark.parametrize(
    ("fault", "outcome"), [(None, "Applied"), (RefusedError("forbidden"), "ChildRefused")]
)
async def test_the_time_of_a_reconciliation_is_measured_by_its_outcome(
    operator: Operator, fault: KubeError | None, outcome: str
) -> None:
    operator.api.apply_raises = fault
    ticks = itertools.count(start=100, step=2)
    context = cast("Any", operator.worker._context)
    context.clock = lambda: float(next(ticks))

    await operator.worker._reconcile()

    sample = partial(context.metrics.registry.get_sample_value, labels={"outcome": outcome})
    assert sample("dledger_reconcile_seconds_count") == 1
    assert sample("dledger_reconcile_seconds_sum") >= 2


async def test_the_failure_is_no_longer_named_once_a_reconciliation_succeeds(
    operator: Operator,
) -> None:
    operator.api.apply_raises = WEBHOOK
    await operator.fails()
    await operator.fails(after_s=LASTS_S)
    assert (await operator.ready())["reason"] == "ReconcileFailed"

    operator.api.apply_raises = None
    await operator.worker._reconcile()
    assert (await operator.ready())["reason"] == "NoLeader"
    operator.change_spec()
    operator.api.apply_raises = ConflictError("apply StatefulSet air/flights: it has changed")
    await operator.fails(after_s=10 * LASTS_S)
    assert (await operator.ready())["reason"] == "NoLeader", "it has failed for a moment"


async def test_a_failure_that_ends_soon_is_not_named(operator: Operator) -> None:
    operator.api.apply_raises = ConflictError("apply StatefulSet air/flights: it has changed")
    await operator.fails()
    await operator.fails(after_s=LASTS_S / 2)

    assert await operator.ready() == READY


async def test_the_absence_of_the_api_server_is_no_failure_of_the_group(operator: Operator) -> None:
    operator.api.is_away = True
    for _ in range(3):
        await operator.fails(after_s=LASTS_S)
    assert await operator.ready() == READY

    operator.api.is_away = False
    operator.api.apply_raises = WEBHOOK
    await operator.fails(after_s=LASTS_S - 1)
    assert await operator.ready() == READY, "it has not failed for long since the server is back"


async def test_a_spec_that_is_in_effect_stays_so_when_it_cannot_be_applied_again(
    operator: Operator,
) -> None:
    await operator.worker._reconcile()
    before = await operator.ready()
    operator.api.apply_raises = WEBHOOK
    await operator.fails()
    await operator.fails(after_s=LASTS_S)

    assert await operator.ready() == before


async def test_a_new_spec_that_cannot_be_applied_is_named_without_a_restart(
    operator: Operator,
) -> None:
    await operator.worker._reconcile()
    applied = operator.worker._snapshot.reconciled
    operator.change_spec()
    operator.api.apply_raises = WEBHOOK
    await operator.fails()
    await operator.fails(after_s=LASTS_S)

    ready = await operator.ready()
    assert (ready["reason"], ready["observedGeneration"]) == ("ReconcileFailed", 5)
    found = operator.worker._snapshot
    assert found.reconciled.in_force == applied.in_force, "what pods are made of is still known"
    assert found.roll_target(5) is None, "nothing is rolled out"


@pytest.mark.parametrize("changed", [False, True], ids=["a new process", "a new spec"])
async def test_whoever_waits_for_a_change_is_not_told_that_it_is_done_while_nobody_knows(
    operator: Operator, changed: bool
) -> None:
    """A roll may be under way: a process that has not reconciled does not know to what."""
    if changed:
        await operator.worker._reconcile()
        operator.change_spec()
    made = operator.worker._snapshot.reconciled.in_force
    pods = tuple(pod(each, revision=made) for each in range(3))
    operator.worker._snapshot.followed = FollowResult(pods=pods)
    operator.api.apply_raises = WEBHOOK
    await operator.fails()
    await operator.fails(after_s=LASTS_S)

    assert (await operator.ready())["reason"] == "ReconcileFailed"
    conditions = {each["type"]: each for each in operator.api.statuses[-1]["conditions"]}
    found = conditions["Progressing"]
    assert (found["status"], found["reason"]) == ("Unknown", "ReconcileFailed")
    assert str(WEBHOOK) in found["message"]


@pytest.mark.parametrize("reason", ["NameTaken", "WaitingForRemains", "InvalidSpec"])
def test_a_group_of_which_nothing_is_applied_does_not_have_what_its_spec_asks_for(
    reason: str,
) -> None:
    problem = Problem(reason=reason, message="nothing was changed")

    verdict = progressing.judge(observed_group(problem=problem, first_voters=None))

    assert (verdict.holds, verdict.reason) == (None, reason)
    assert progressing.judge(observed_group(problem=problem, first_voters=3)).holds is False


async def test_another_failure_takes_the_place_of_the_one_before(operator: Operator) -> None:
    for error in (WEBHOOK, FORBIDDEN):
        operator.api.child_raises = error
        await operator.fails()
        await operator.fails(after_s=LASTS_S)
        assert str(error) in (await operator.ready())["message"]


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        (InvalidError, "correct the part"),
        (RefusedError, "permission"),
        (ConflictError, "the client that keeps changing"),
        (NotFoundError, "who deletes it"),
        (UnavailableError, "a webhook"),
    ],
)
def test_each_failure_says_what_to_do_however_long_the_servers_words_are(
    kind: type[KubeError], cure: str
) -> None:
    message = problem_of(kind("apply Service air/flights-master: " + "x" * 5000)).message

    assert "apply Service air/flights-master: x" in message
    assert cure in message[MESSAGE_LENGTH_MAX:]
