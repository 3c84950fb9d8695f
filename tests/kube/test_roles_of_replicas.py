"""After a change of `spec.roles`, all replicas of the operator label pods by the same roles."""

from typing import Any

import pytest

from dledger_kube.applied import Applied
from dledger_kube.objects import group, group_body, leads, membership, pod, says
from dledger_kube.pod_store import PodStore
from dledger_kube.stepped_follower import Outcome, SteppedFollower, settle
from dledger_kube.worker_context import unconnected
from dledger_operator import names
from dledger_operator.api_objects import ChildView, Manifest, OwnerView
from dledger_operator.behaviors.group_worker import GroupWorker
from dledger_operator.behaviors.leader.role_labeler import HEAD_START_S, STANDING_BY_GAP_S
from dledger_operator.clients.errors import ConflictError, KubeError, UnavailableError
from dledger_operator.resources import client_service
from dledger_operator.spec.group import Group

N1_LEADS = [says(0, 7, "n1"), leads(1, 7), says(2, 7, "n1")]
N2_LEADS = [says(0, 8, "n2"), says(1, 8, "n2"), leads(2, 8)]
NEW = {"master": "leader", "slave": "follower"}


class Store(PodStore):
    """The pods, and the master Service as the operator applied it."""

    def __init__(self, applied: Group) -> None:
        super().__init__([pod(0), pod(1), pod(2)])
        self.applied = applied

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        found = await super().child(kind, namespace, name)
        if kind != "Service":
            return found
        made = client_service.build_master(self.applied)
        return ChildView(
            kind=kind,
            name=name,
            uid="service-uid",
            owners=[OwnerView(kind="DLedgerGroup", name="flights", uid="group-uid")],
            labels={},
            leaving=False,
            annotations=made["metadata"]["annotations"],
            selector=made["spec"]["selector"],
        )


class Replicas:
    """One replica of the operator that acts, and one that stands by."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.store = Store(group())
        self.told = N1_LEADS
        self.acting, self.standby = self._replica(stands_by=False), self._replica(stands_by=True)

    def _replica(self, *, stands_by: bool) -> SteppedFollower:
        return SteppedFollower(
            self.store,
            group(),
            membership(),
            clock=lambda: self.now_s,
            answer=lambda _: None,
            stands_by=lambda: stands_by,
        )

    def change_roles(self) -> None:
        """Apply the Services with other roles; the watch of no replica has told it yet."""
        self.store.applied = group(roles=NEW)
        self.acting.group = self.standby.group = self.store.applied

    async def look(self, replica: SteppedFollower) -> None:
        self.tell(replica)
        await replica.turn()

    def tell(self, replica: SteppedFollower) -> None:
        """Tell a replica what the members say, and of all changes of pods."""
        replica.observations = {each.pod_uid: each for each in self.told}
        for each in self.store.pods():
            replica.saw(each)

    def roles(self) -> list[str]:
        return [each.role(group().roles) for each in self.store.pods()]


@pytest.fixture
async def replicas() -> Replicas:
    """Both know the roles that the Services had before."""
    made = Replicas()
    for _ in range(2):
        await made.look(made.acting)
        await made.look(made.standby)
        made.now_s += STANDING_BY_GAP_S
    assert made.roles() == ["slave", "master", "slave"]
    return made


async def test_a_replica_that_does_not_act_puts_no_former_roles_back(replicas: Replicas) -> None:
    replicas.change_roles()
    replicas.acting.service_changed()
    before = len(replicas.store.patches)
    for _ in range(10):
        await replicas.look(replicas.acting)
        assert replicas.roles() == ["follower", "leader", "follower"]
        await replicas.look(replicas.standby)
        replicas.now_s += HEAD_START_S

    assert len(replicas.store.patches) == before + 3, "each pod was labeled once"


async def test_former_roles_that_were_read_before_a_change_are_not_put_back(
    replicas: Replicas,
) -> None:
    replicas.told, standby = N2_LEADS, replicas.standby
    await replicas.look(standby)
    replicas.now_s += HEAD_START_S

    replicas.tell(standby)
    standby.begin()
    await settle()
    while standby.requests[0].what != "get Service":
        await standby.let_on(0, Outcome.OK)
    await standby.let_on(0, Outcome.OK)
    replicas.change_roles()
    replicas.acting.service_changed()
    await replicas.look(replicas.acting)
    while standby.runs:
        await standby.let_on(0, Outcome.OK)

    assert replicas.roles() == ["follower", "follower", "leader"]


async def test_a_replica_that_does_not_act_ends_a_change_that_the_other_one_has_begun(
    replicas: Replicas,
) -> None:
    replicas.change_roles()
    replicas.standby.service_changed()
    for _ in range(2):
        await replicas.look(replicas.standby)
        replicas.now_s += HEAD_START_S

    assert replicas.roles() == ["follower", "leader", "follower"]


def child(kind: str, name: str, version: str = "7") -> dict[str, Any]:
    labels = {names.GROUP_LABEL: "flights"}
    metadata = {"namespace": "air", "name": name, "labels": labels, "resourceVersion": version}
    return {"kind": kind, "metadata": metadata}


async def follows_by_new_roles(worker: GroupWorker) -> bool:
    """Return whether the worker is to read the roles again at once."""
    woken = await worker.loops.wakes["follow"].wait(0.01)
    assert woken == worker._labeler.roles_changed
    return woken


@pytest.mark.parametrize("acts", [True, False])
async def test_an_event_of_the_master_service_lets_every_replica_read_its_roles_again(
    acts: bool,
) -> None:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    if acts:
        worker.act(None)
    worker._labeler.roles_changed = False

    worker.child_changed("MODIFIED", child("ConfigMap", "flights-master"))
    worker.child_changed("MODIFIED", child("Service", "flights-slave"))
    assert not await follows_by_new_roles(worker)
    worker.child_changed("MODIFIED", child("Service", "flights-master"))
    assert await follows_by_new_roles(worker)


async def test_a_watch_that_begins_again_tells_nothing_new_about_the_roles() -> None:
    worker = GroupWorker(group_body(), unconnected(), lambda: None)
    worker.child_changed("ADDED", child("Service", "flights-master"))
    assert await follows_by_new_roles(worker)
    worker._labeler.roles_changed = False

    worker.child_changed(None, child("Service", "flights-master"))
    assert not await follows_by_new_roles(worker)
    worker.child_changed("MODIFIED", child("Service", "flights-master", "8"))
    assert await follows_by_new_roles(worker)


class FailsAfterTheServices(Applied):
    """An API server that answers the apply of everything but Services with an error."""

    def __init__(self, error: KubeError) -> None:
        super().__init__()
        self._error = error

    async def apply(self, manifest: Manifest) -> None:
        if manifest["kind"] in ("PodDisruptionBudget", "NetworkPolicy", "StatefulSet"):
            raise self._error
        await super().apply(manifest)


@pytest.mark.parametrize("error", [UnavailableError("500"), ConflictError("409")])
async def test_a_reconciliation_that_fails_after_the_services_has_changed_the_roles(
    error: KubeError,
) -> None:
    api = FailsAfterTheServices(error)
    worker = GroupWorker(group_body(), unconnected(api), lambda: None)
    worker._labeler.roles_changed = False

    with pytest.raises(type(error)):
        await worker._reconcile()

    assert "Service" in api.kinds
    assert await follows_by_new_roles(worker)
