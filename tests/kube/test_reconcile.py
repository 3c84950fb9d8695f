"""Making the objects that a group consists of."""

from collections.abc import Sequence
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.behaviours.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError, RefusedError, UnavailableError
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape
from dledger_operator.views import Manifest, SettingsView, StatefulSetView, VolumeView


class Applied:
    """An API that remembers what was applied, and refuses what a test names."""

    def __init__(
        self,
        stateful_set: StatefulSetView | None = None,
        refuse: str = "",
        settings: SettingsView | None = None,
        claims: Sequence[VolumeView] = (),
    ) -> None:
        self.existing = stateful_set
        self.found = settings
        self.left = list(claims)
        self.refuse = refuse
        self.manifests: list[Manifest] = []

    async def apply(self, manifest: Manifest) -> None:
        if manifest["metadata"]["name"] == self.refuse:
            raise RefusedError(f"{self.refuse}: spec is invalid")
        self.manifests.append(manifest)

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        assert (namespace, name) == ("air", "flights")
        return self.existing

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        assert (namespace, config_map) == ("air", "flights-settings")
        return self.found

    async def volumes(self, namespace: str, group: str) -> list[VolumeView]:
        assert (namespace, group) == ("air", "flights")
        return self.left

    @property
    def kinds(self) -> list[str]:
        return [manifest["kind"] for manifest in self.manifests]

    @property
    def claims(self) -> list[Manifest]:
        found: list[Manifest] = self.manifests[-1]["spec"]["volumeClaimTemplates"]
        return found


def made(templates: list[Manifest], replicas: int = 3) -> StatefulSetView:
    """A StatefulSet with these volume claim templates."""
    return StatefulSetView(
        namespace="air",
        name="flights",
        owner_uid="group-uid",
        resource_version="11",
        replicas=replicas,
        first_voters=3,
        volume_claim_templates=templates,
    )


def claims(size: str, **metadata: Any) -> list[Manifest]:
    """What the API server made of a volume claim template when the group was young."""
    return [
        {
            "metadata": {"name": "data", **metadata},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": size}},
            },
            "status": {"phase": "Pending"},
        }
    ]


async def test_every_child_is_applied_and_the_pods_come_last() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.manifests == children.build(group(), Shape.of_new(3))
    assert api.kinds[-1] == "StatefulSet"
    assert (outcome.generation, outcome.problem, outcome.warning) == (4, None, None)


async def test_a_spec_that_cannot_be_read_changes_nothing() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body({"replicas": 2}), IMAGES, led=False, voters=3)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "InvalidSpec"
    assert "spec.replicas is 2" in outcome.problem.message


async def test_a_paused_group_is_left_alone() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body({"paused": True}), IMAGES, led=False, voters=3)

    assert api.manifests == []
    assert (outcome.generation, outcome.problem) == (4, None)


async def test_one_refused_child_does_not_keep_the_others_back() -> None:
    api = Applied(refuse="flights-slave")

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert len(api.manifests) == len(children.build(group(), Shape.of_new(3))) - 1
    assert api.kinds[-1] == "StatefulSet"
    assert outcome.problem is not None
    assert outcome.problem.reason == "ChildRefused"
    assert "flights-slave: spec is invalid" in outcome.problem.message


async def test_a_server_that_cannot_answer_is_tried_again_later() -> None:
    class Down(Applied):
        async def apply(self, manifest: Manifest) -> None:
            raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        await reconcile(Down(), group_body(), IMAGES, led=False, voters=3)


async def test_what_a_stateful_set_cannot_change_is_sent_as_it_is() -> None:
    existing = claims("10240Mi", labels={"made-by": "an older operator"})
    api = Applied(made(existing))

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.claims == existing
    assert outcome.warning is None


async def test_volumes_that_differ_from_the_spec_are_warned_of_and_stop_nothing_else() -> None:
    api = Applied(made(claims("5Gi")))

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.claims == claims("5Gi")
    assert outcome.problem is None
    assert outcome.warning is not None
    assert outcome.warning.reason == "StorageUnchanged"
    assert "5Gi" in outcome.warning.message


async def test_the_stateful_set_keeps_its_pods_whatever_the_spec_asks_for() -> None:
    api = Applied(made(claims("10Gi"), replicas=3))

    outcome = await reconcile(api, group_body({"replicas": 7}), IMAGES, led=True, voters=3)

    applied = api.manifests[-1]
    assert applied["spec"]["replicas"] == 3
    assert applied["metadata"]["resourceVersion"] == "11", "or a step of scaling could be undone"
    assert outcome.shape is not None
    assert outcome.shape.first_voters == 3


async def test_a_group_of_which_it_is_not_sure_who_founded_it_is_left_alone() -> None:
    settings = SettingsView(owner_uid="group-uid", data={"DLEDGER_PEERS": "n0-a:1"})
    api = Applied(made(claims("10Gi")), settings=settings)

    outcome = await reconcile(api, group_body(), IMAGES, led=True, voters=3)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "FoundingUnknown"
    assert "the ConfigMap says 1, the StatefulSet says 3" in outcome.problem.message


async def test_without_settings_nothing_is_made_that_would_tell_that_the_group_is_old() -> None:
    api = Applied(refuse="flights-settings")

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.kinds == ["ServiceAccount"]
    assert outcome.problem is not None
    assert outcome.shape is None


async def test_what_a_deleted_group_of_the_same_name_left_is_waited_for() -> None:
    former = SettingsView(owner_uid="former-uid", data={})
    going = VolumeView(name="data-flights-0", ordinal=0, first_voters=3, leaving=True, trouble=None)

    with pytest.raises(ConflictError, match="ConfigMap of a group of the same name"):
        await reconcile(Applied(settings=former), group_body(), IMAGES, led=False, voters=3)
    with pytest.raises(ConflictError, match="volume claim data-flights-0 is gone"):
        await reconcile(Applied(claims=[going]), group_body(), IMAGES, led=False, voters=3)
