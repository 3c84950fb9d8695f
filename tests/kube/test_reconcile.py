"""Reconciling the children of a group."""

from collections.abc import Sequence
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.api_objects import Manifest, SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviours.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError, RefusedError, UnavailableError
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape


class Applied:
    """An API that records applied manifests, and refuses the one named `refuse`."""

    def __init__(
        self,
        stateful_set: StatefulSetView | None = None,
        refuse: str = "",
        settings: SettingsView | None = None,
        claims: Sequence[VolumeClaimView] = (),
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

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
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
    """A volume claim template as the API server stored it when the group was created."""
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


async def test_every_child_is_applied_and_the_stateful_set_comes_last() -> None:
    api = Applied()

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.manifests == children.build(group(), Shape.of_new(3))
    assert api.kinds[-1] == "StatefulSet"
    assert (outcome.generation, outcome.problem, outcome.warning) == (4, None, None)


async def test_an_invalid_spec_changes_nothing() -> None:
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


async def test_a_refused_child_does_not_block_the_others() -> None:
    api = Applied(refuse="flights-slave")

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert len(api.manifests) == len(children.build(group(), Shape.of_new(3))) - 1
    assert api.kinds[-1] == "StatefulSet"
    assert outcome.problem is not None
    assert outcome.problem.reason == "ChildRefused"
    assert "flights-slave: spec is invalid" in outcome.problem.message


async def test_an_unavailable_server_fails_the_reconciliation() -> None:
    class Down(Applied):
        async def apply(self, manifest: Manifest) -> None:
            raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        await reconcile(Down(), group_body(), IMAGES, led=False, voters=3)


async def test_immutable_fields_of_a_stateful_set_are_sent_unchanged() -> None:
    existing = claims("10240Mi", labels={"example.com/team": "a"})
    api = Applied(made(existing))

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.claims == existing
    assert outcome.warning is None


async def test_a_changed_volume_size_yields_a_warning_and_blocks_nothing_else() -> None:
    api = Applied(made(claims("5Gi")))

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.claims == claims("5Gi")
    assert outcome.problem is None
    assert outcome.warning is not None
    assert outcome.warning.reason == "StorageUnchanged"
    assert "5Gi" in outcome.warning.message


async def test_the_stateful_set_keeps_its_replicas_whatever_the_spec_asks_for() -> None:
    api = Applied(made(claims("10Gi"), replicas=3))

    outcome = await reconcile(api, group_body({"replicas": 7}), IMAGES, led=True, voters=3)

    applied = api.manifests[-1]
    assert applied["spec"]["replicas"] == 3
    assert applied["metadata"]["resourceVersion"] == "11", "else a scaling step could be undone"
    assert outcome.shape is not None
    assert outcome.shape.first_voters == 3


async def test_a_group_with_contradicting_founding_records_is_left_unchanged() -> None:
    settings = SettingsView(owner_uid="group-uid", data={"DLEDGER_PEERS": "n0-a:1"})
    api = Applied(made(claims("10Gi")), settings=settings)

    outcome = await reconcile(api, group_body(), IMAGES, led=True, voters=3)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "FoundingUnknown"
    assert "the ConfigMap says 1, the StatefulSet says 3" in outcome.problem.message


async def test_nothing_after_the_settings_is_created_if_the_settings_are_refused() -> None:
    api = Applied(refuse="flights-settings")

    outcome = await reconcile(api, group_body(), IMAGES, led=False, voters=3)

    assert api.kinds == ["ServiceAccount"]
    assert outcome.problem is not None
    assert outcome.shape is None


async def test_reconciling_waits_for_the_objects_of_a_deleted_group_of_the_same_name() -> None:
    former = SettingsView(owner_uid="former-uid", data={})
    leaving = VolumeClaimView(
        name="data-flights-0", ordinal=0, first_voters=3, leaving=True, problem=None
    )

    with pytest.raises(ConflictError, match="the ConfigMap of a deleted group of the same name"):
        await reconcile(Applied(settings=former), group_body(), IMAGES, led=False, voters=3)
    with pytest.raises(ConflictError, match="deletion of volume claim data-flights-0"):
        await reconcile(Applied(claims=[leaving]), group_body(), IMAGES, led=False, voters=3)
