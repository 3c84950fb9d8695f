"""What is told of a group whose pods the operator cannot list or label for a while."""

import contextlib
from collections.abc import Mapping
from typing import Any, cast

import pytest

from dledger_kube.objects import (
    IMAGES,
    NOW,
    STATEFUL_SET_UID,
    group_body,
    leader_status,
    leads,
    membership,
    node_status,
    pod,
    says,
)
from dledger_kube.worker_context import unconnected
from dledger_operator.api_objects import ChildView, EndpointView, OwnerView, PodView
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.following import Following
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.role_labeler import FollowResult, RoleLabeler
from dledger_operator.behaviors.report.group_reporter import GroupReporter
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.clients.errors import KubeError, RefusedError, UnavailableError
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_state import Leader, ObservedGroup
from dledger_operator.problem import Problem
from dledger_operator.spec.shape import Shape

WEBHOOK = 'relabel pod air/flights-1: failed calling webhook "validate.kyverno.svc-fail"'
FORBIDDEN = "list the pods of air/flights: forbidden"
LED_BY_N1 = [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]
LED_BY_N2 = [says(0, 8, "n2"), says(1, 8, "n2"), leads(2, 8)]


class World:
    """One group, followed; the master Service's endpoint is n1's pod throughout."""

    def __init__(self, body: Mapping[str, Any] | None = None) -> None:
        self.now_s = 0.0
        self.pods = [pod(0, "slave", 7), pod(1, "master", 7), pod(2, "slave", 7)]
        self.says = LED_BY_N1
        self.patch_error: KubeError | None = None
        self.list_error: KubeError | None = None
        self.metrics = OperatorMetrics(clock=lambda: self.now_s)
        self.snapshot = GroupSnapshot.of(body or group_body(), IMAGES)
        self.snapshot.reconciled = ReconcileResult(
            generation=4, group=self.snapshot.group, shape=Shape.of_new(3)
        )
        self.snapshot.membership = membership()
        self.snapshot.endpoints = [EndpointView(pod="flights-1", ready=True)]
        polls = cast("LeaderPolls", self)
        labeler = RoleLabeler(
            self,
            polls,
            ask=self.ask,
            clock=lambda: self.now_s,
            on_decision=lambda _: None,
            on_settled=self._found,
            on_conflict=lambda: None,
        )
        self.following = Following(
            labeler, polls, self.snapshot, clock=lambda: self.now_s, on_found=self._found
        )

    def _found(self, followed: FollowResult) -> None:
        self.snapshot.followed = followed

    async def member_pods(self, namespace: str, group: str, _: int = 0) -> list[PodView]:
        if self.list_error:
            raise self.list_error
        return self.pods

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        owners = [OwnerView(kind="DLedgerGroup", name="flights", uid="group-uid")]
        made = ChildView(
            kind=kind, name=name, uid=STATEFUL_SET_UID, owners=owners, labels={}, leaving=False,
            annotations={}, selector={},
        )  # fmt: skip
        return made if kind == "StatefulSet" else None

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        assert self.patch_error, "no other patch is made"
        raise self.patch_error

    async def ask(self, _: object) -> dict[str, Any]:
        return {}

    def observations(self) -> list[Any]:
        return self.says

    def sync(self, _: object) -> None:
        """No pod is polled."""

    async def follow(self, for_s: float = 0.0) -> None:
        """Let runs fail or succeed for some time."""
        end_s = self.now_s + for_s
        while True:
            with contextlib.suppress(KubeError):
                await self.following.run_once()
            if self.now_s >= end_s:
                return
            self.now_s += 1.0

    def hand_over(self) -> None:
        """n2 leads, and n1 stays up."""
        self.says = LED_BY_N2
        self.snapshot.answers = {
            "uid-0": node_status("n0", term=8, leader_id="n2"),
            "uid-1": node_status("n1", term=8, leader_id="n2"),
            "uid-2": leader_status("n2", term=8, leader_id="n2"),
        }

    def observed(self) -> ObservedGroup:
        return self.snapshot.observe(NOW, None, None, Nodes())

    def status(self, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
        history, before = self.snapshot.history, previous or {}
        return build_status(self.observed(), history, generation=4, previous=before, now=NOW)

    def told(self) -> dict[str, tuple[str, str]]:
        """Return the status and the reason of each condition."""
        conditions = self.status()["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in conditions}

    def message(self, kind: str) -> str:
        conditions = {each["type"]: each for each in self.status()["conditions"]}
        return str(conditions[kind]["message"])


async def led_by_n2(**errors: KubeError) -> World:
    """Return a group whose leadership has moved while requests fail."""
    world = World()
    await world.follow()
    assert world.snapshot.followed.labeled == Leader(term=7, member_id="n1")
    for kind, error in errors.items():
        setattr(world, kind, error)
    world.hand_over()
    await world.follow()
    return world


@pytest.mark.parametrize(
    "error",
    [{"patch_error": UnavailableError(WEBHOOK)}, {"list_error": RefusedError(FORBIDDEN)}],
    ids=["pods cannot be labeled", "pods cannot be listed"],
)
async def test_the_leader_is_told_although_the_service_cannot_follow_it(
    error: dict[str, KubeError],
) -> None:
    world = await led_by_n2(**error)

    leader = world.status()["leader"]
    assert (leader["member"], leader["term"], leader["pod"]) == ("n2", 8, "flights-2")
    assert world.told()["LeaderElected"] == ("True", "LeaderElected")
    assert world.told()["EndpointsSynced"] == ("False", "WrongEndpoints")
    assert world.told()["Ready"] == ("False", "WrongEndpoints")

    world.metrics.update_group(world.observed(), [])
    world.now_s += 10.0
    key = {"namespace": "air", "group": "flights"}
    wrong = world.metrics.registry.get_sample_value("dledger_group_endpoints_wrong", key)
    assert wrong == 1, "DLedgerMasterServiceWrong fires"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"patch_error": UnavailableError(WEBHOOK)}, WEBHOOK),
        ({"list_error": RefusedError(FORBIDDEN)}, FORBIDDEN),
    ],
    ids=["pods cannot be labeled", "pods cannot be listed"],
)
async def test_a_failure_that_lasts_is_named(error: dict[str, KubeError], words: str) -> None:
    world = await led_by_n2(**error)
    assert words not in world.message("Degraded"), "a retry may mend it"

    await world.follow(for_s=6.0)

    assert world.told()["Degraded"] == ("True", "FollowFails")
    for kind in ("Degraded", "EndpointsSynced", "Ready"):
        assert f"cannot be listed or labeled: {words}" in world.message(kind)


async def test_a_failure_is_forgotten_once_the_labels_are_right() -> None:
    world = await led_by_n2(patch_error=UnavailableError(WEBHOOK))
    await world.follow(for_s=6.0)

    world.pods = [pod(0, "slave", 8, leader_pod_uid="uid-2"),
                  pod(1, "slave", 8, leader_pod_uid="uid-2"),
                  pod(2, "master", 8, leader_pod_uid="uid-2")]  # fmt: skip
    world.snapshot.endpoints = [EndpointView(pod="flights-2", ready=True)]
    await world.follow()

    assert world.told()["Ready"] == ("True", "LeaderElected")
    assert world.told()["Degraded"] == ("False", "AsExpected")
    assert not world.snapshot.followed.awaits_labels


async def test_no_member_is_added_or_removed_while_the_service_sends_to_another_one() -> None:
    world = await led_by_n2(patch_error=UnavailableError(WEBHOOK))

    assert world.snapshot.followed.awaits_labels


async def test_a_pod_that_was_replaced_is_known_although_it_cannot_be_labeled() -> None:
    world = await led_by_n2(patch_error=UnavailableError(WEBHOOK))

    world.pods = [pod(0, uid="uid-0-again", ready=False), *world.pods[1:]]
    await world.follow()

    assert world.snapshot.followed.pods[0].uid == "uid-0-again"


async def test_a_member_s_news_counts_although_the_next_run_is_long_in_coming() -> None:
    """The API server may ask for a pause of a minute."""
    world = World()
    await world.follow()
    world.list_error = UnavailableError("too many requests", retry_after_s=60.0)
    await world.follow()
    assert world.status()["leader"]["member"] == "n1"

    world.hand_over()
    world.following.polls_changed()

    assert world.status()["leader"]["member"] == "n2"


async def test_what_a_failing_run_has_found_wakes_the_report() -> None:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    assert not await worker.loops.wakes["report"].wait(0.01)

    worker._following._on_found(FollowResult(leader=Leader(term=8, member_id="n2")))

    assert await worker.loops.wakes["report"].wait(0.01)


OF_PODS = (
    "Ready", "LeaderElected", "QuorumHealthy", "EndpointsSynced", "Degraded", "Progressing",
    "LeaderPlaced",
)  # fmt: skip

WAITS_FOR_APPROVAL = {"revision": "flights-2", "cause": "Operator", "reason": "AwaitingApproval"}


@pytest.mark.parametrize("hibernate", [False, True], ids=["awake", "to hibernate"])
async def test_nothing_is_told_of_pods_that_were_never_listed(hibernate: bool) -> None:
    """An operator that has just started does not call a group broken that it cannot look at."""
    before = World()
    await before.follow()
    before.hand_over()
    known = before.status() | {"plan": WAITS_FOR_APPROVAL}
    world = World(group_body({"hibernate": hibernate}))
    world.list_error = RefusedError(FORBIDDEN)
    await world.follow(for_s=6.0)

    status = world.status(known)

    conditions = {each["type"]: each for each in status["conditions"]}
    for kind in OF_PODS:
        assert (conditions[kind]["status"], conditions[kind]["reason"]) == (
            "Unknown",
            "PodsUnknown",
        ), kind
        assert FORBIDDEN in conditions[kind]["message"]
    for key in ("replicas", "readyReplicas", "members", "leader", "toleratedFailures", "plan"):
        assert status[key] == known[key], "what was known stays"
    assert not world.snapshot.hibernates


async def test_endpoints_that_nobody_has_read_are_not_called_wrong() -> None:
    world = World()
    world.snapshot.endpoints = None
    await world.follow()

    assert world.told()["EndpointsSynced"] == ("Unknown", "EndpointsUnknown")
    assert world.told()["Ready"][0] != "True"


async def test_no_report_is_made_before_the_pods_were_listed_or_that_fails_for_long() -> None:
    worker, reported = GroupWorker(group_body(), unconnected(), lambda: None), []

    async def report(*_: object) -> None:
        reported.append(worker._snapshot.followed)

    worker._snapshot.reconciled = ReconcileResult(generation=4)
    reporter = cast("Any", worker._reporter)
    reporter.report, reporter.may_replace_status = report, lambda complete: True
    await worker._report()
    assert not reported

    worker._snapshot.followed = FollowResult(problem=Problem(reason="FollowFails", message="x"))
    await worker._report()
    assert len(reported) == 1


async def test_a_spec_that_leaves_nothing_to_follow_is_named_in_the_status() -> None:
    """The CRD of an earlier release may let such a spec pass."""
    body, world = group_body(name="f" * 41), World()
    known = world.status()
    worker, written = GroupWorker(body, unconnected(), lambda: None), list[dict[str, Any]]()
    assert worker._snapshot.group is None

    async def report(_: object, observed: ObservedGroup, history: Any, generation: int) -> None:
        told = {"generation": generation, "previous": known, "now": NOW}
        written.append(build_status(observed, history, **told))

    problem = Problem(reason="InvalidSpec", message="create a group with a shorter name")
    worker._snapshot.reconciled = ReconcileResult(generation=4, problem=problem)
    reporter = cast("Any", worker._reporter)
    reporter.report, reporter.may_replace_status = report, lambda complete: True
    await worker._following.run_once()
    await worker._report()

    [status] = written
    told = {each["type"]: each for each in status["conditions"]}
    assert (told["Ready"]["status"], told["Ready"]["reason"]) == ("False", "InvalidSpec")
    assert told["Ready"]["message"] == problem.message
    assert told["QuorumHealthy"]["status"] == "Unknown"
    assert "the spec cannot be followed" in told["QuorumHealthy"]["message"]
    assert status["members"] == known["members"], "nobody has looked at them"


async def test_a_spec_error_is_named_although_the_pods_were_never_listed() -> None:
    """Of several missing permissions, a user would learn one at a time."""
    world = World()
    refused = Problem(reason="ReconcileFailed", message="apply the Services: forbidden")
    world.snapshot.reconciled = ReconcileResult(generation=4, problem=refused)
    world.list_error = RefusedError(FORBIDDEN)
    await world.follow(for_s=6.0)

    assert world.told()["Ready"] == ("False", "ReconcileFailed")
    assert refused.message in world.message("Ready")
    assert FORBIDDEN in world.message("LeaderElected")


async def test_pods_that_are_not_known_raise_no_alert_about_the_group() -> None:
    context = unconnected()
    made: list[str] = []
    context.metrics.update_group = lambda *_: made.append("metrics")  # type: ignore[method-assign]
    reporter = GroupReporter(context, {}, lambda: None)
    cast("Any", reporter)._writer.report = _write_nothing
    world = World()
    world.list_error = RefusedError(FORBIDDEN)
    await world.follow()

    await reporter.report(group_body(), world.observed(), world.snapshot.history, 4)
    assert not made

    world.list_error = None
    await world.follow()
    await reporter.report(group_body(), world.observed(), world.snapshot.history, 4)
    assert made == ["metrics"]


async def _write_nothing(*_: object) -> None:
    """Write no status."""
