"""Reconciling the children of a group."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_kube.applied import Applied
from dledger_kube.objects import IMAGES, NOW, group, group_body
from dledger_operator.api_objects import (
    ChildView,
    Manifest,
    OwnerView,
    SettingsView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviors.children.planned import NO_VERSION
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from dledger_operator.resources import children
from dledger_operator.spec.shape import Shape


def made(templates: list[Manifest], replicas: int = 3) -> StatefulSetView:
    """A StatefulSet with these volume claim templates."""
    return StatefulSetView(
        namespace="air",
        name="flights",
        uid="stateful-set-uid",
        resource_version="11",
        replicas=replicas,
        first_voters=3,
        identity="",
        volume_claim_templates=templates,
    )


def group_owner(uid: str) -> OwnerView:
    return OwnerView(kind="DLedgerGroup", name="flights", uid=uid)


def child(
    kind: str, name: str, owner: OwnerView | None = None, labels: dict[str, str] | None = None
) -> ChildView:
    """An object with a child's name; by default with the labels of the group's children."""
    own = {"dledger.io/group": "flights", "app.kubernetes.io/managed-by": "dledger-operator"}
    return ChildView(
        kind=kind,
        name=name,
        uid=f"{name}-uid",
        owners=[owner] if owner else [],
        labels=own if labels is None else labels,
        leaving=False,
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

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    shape = replace(Shape.of_new(3), identity=group().uid)
    recorded = api.manifests[-1]["metadata"]["annotations"].pop("dledger.io/applied-spec")
    assert recorded.startswith("4 "), "the generation"
    assert api.manifests == children.build(group(), shape)
    assert api.kinds[-1] == "StatefulSet"
    assert (outcome.generation, outcome.problem, outcome.warning) == (4, None, None)


async def test_an_invalid_spec_changes_nothing() -> None:
    api = Applied()

    outcome = await reconcile(
        api, group_body({"replicas": 2}), IMAGES, now=NOW, led=False, voters=3
    )

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "InvalidSpec"
    assert "spec.replicas is 2" in outcome.problem.message


async def test_a_paused_group_is_left_alone() -> None:
    api = Applied()

    outcome = await reconcile(
        api, group_body({"paused": True}), IMAGES, now=NOW, led=False, voters=3
    )

    assert api.manifests == []
    assert (outcome.generation, outcome.problem) == (4, None)


async def test_settings_that_pods_of_an_earlier_release_read_are_kept() -> None:
    earlier = {"DLEDGER_GROUP": "flights", "DLEDGER_PEERS": "n0-a:1;n1-b:1;n2-c:1"}
    api = Applied(made(claims("10Gi")), settings=SettingsView(data=earlier))

    await reconcile(api, group_body(), IMAGES, now=NOW, led=True, voters=3)

    (applied,) = (each["data"] for each in api.manifests if each["kind"] == "ConfigMap")
    assert applied["DLEDGER_GROUP"] == "flights"
    assert applied["DLEDGER_INITIAL_GROUP_STATE"] == "existing"


async def test_a_refused_child_does_not_block_the_others() -> None:
    api = Applied(refuse="flights-slave")

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

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
        await reconcile(Down(), group_body(), IMAGES, now=NOW, led=False, voters=3)


async def test_immutable_fields_of_a_stateful_set_are_sent_unchanged() -> None:
    existing = claims("10240Mi", labels={"example.com/team": "a"})
    api = Applied(made(existing))

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.claims == existing
    assert outcome.warning is None


async def test_a_changed_volume_size_leaves_the_template_and_blocks_nothing_else() -> None:
    api = Applied(made(claims("5Gi")))

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.claims == claims("5Gi")
    assert (outcome.problem, outcome.warning) == (None, None)


async def test_the_stateful_set_keeps_its_replicas_whatever_the_spec_asks_for() -> None:
    api = Applied(made(claims("10Gi"), replicas=3))

    outcome = await reconcile(api, group_body({"replicas": 7}), IMAGES, now=NOW, led=True, voters=3)

    applied = api.manifests[-1]
    assert applied["spec"]["replicas"] == 3
    assert applied["metadata"]["resourceVersion"] == "11", "else a scaling step could be undone"
    assert outcome.shape is not None
    assert outcome.shape.first_voters == 3


async def test_a_group_with_contradicting_founding_records_is_left_unchanged() -> None:
    settings = SettingsView(data={"DLEDGER_PEERS": "n0-a:1"})
    api = Applied(made(claims("10Gi")), settings=settings)

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=True, voters=3)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "FoundingUnknown"
    assert "the ConfigMap says 1, the StatefulSet says 3" in outcome.problem.message


async def test_nothing_after_the_settings_is_created_if_the_settings_are_refused() -> None:
    api = Applied(refuse="flights-settings")

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.kinds == ["ServiceAccount"]
    assert outcome.problem is not None
    assert outcome.shape is None


async def test_reconciling_waits_for_the_objects_of_a_deleted_group_of_the_same_name() -> None:
    leaving = VolumeClaimView(
        name="data-flights-0", ordinal=0, first_voters=3, identity="", leaving=True, problem=None
    )
    former = child("ConfigMap", "flights-settings", owner=group_owner("former-uid"))
    for api, what in (
        (Applied(claims=[leaving]), "volume claim data-flights-0"),
        (Applied(found=[former]), "ConfigMap flights-settings"),
    ):
        outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

        assert api.manifests == []
        assert outcome.problem is not None
        assert outcome.problem.reason == "WaitingForRemains"
        assert what in outcome.problem.message
        assert outcome.waits


async def test_a_new_group_creates_nothing_while_one_of_its_names_is_taken() -> None:
    api = Applied(found=[child("Service", "flights-master", labels={})])

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.manifests == []
    assert outcome.problem is not None
    assert outcome.problem.reason == "NameTaken"
    assert "Service flights-master" in outcome.problem.message


async def test_a_group_whose_service_was_replaced_by_somebody_elses_keeps_its_other_children() -> (
    None
):
    own = child("StatefulSet", "flights", owner=group_owner("group-uid"))
    api = Applied(made(claims("10Gi")), found=[own, child("Service", "flights-master", labels={})])

    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=True, voters=3)

    applied = [manifest["metadata"]["name"] for manifest in api.manifests]
    assert "flights-master" not in applied
    assert len(applied) == len(children.build(group(), Shape.of_new(3))) - 1
    assert outcome.problem is not None
    assert outcome.problem.reason == "NameTaken"


async def test_a_child_is_applied_over_the_very_object_that_was_judged_or_created() -> None:
    own = child("Service", "flights-master", owner=group_owner("group-uid"))
    api = Applied(found=[own])

    await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    pins = {each["metadata"]["name"]: each["metadata"] for each in api.sent}
    assert pins["flights-master"]["uid"] == own.uid
    assert pins["flights-slave"]["resourceVersion"] == NO_VERSION


@pytest.mark.parametrize("live", [None, {"uid": "another-uid"}, {"deletionTimestamp": "now"}])
async def test_no_child_of_a_deleted_group_is_created(live: dict[str, str] | None) -> None:
    api = Applied()
    api.live = None if live is None else group_body()["metadata"] | live

    with pytest.raises(NotFoundError):
        await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert api.manifests == []


def unowned_claim() -> VolumeClaimView:
    return VolumeClaimView(
        name="data-flights-0", ordinal=0, first_voters=3, identity="", leaving=False, problem=None
    )


@pytest.mark.parametrize(
    ("when_deleted", "owners", "expected"),
    [
        ("Delete", [], ["flights"]),
        ("Delete", ["another"], ["another", "flights"]),
        ("Delete", ["another", "flights"], None),
        ("Retain", ["another", "flights"], ["another"]),
        ("Retain", [], None),
    ],
)
async def test_the_group_owns_its_volume_claims_only_if_they_are_to_be_deleted_with_it(
    when_deleted: str, owners: list[str], expected: list[str] | None
) -> None:
    references = [
        {"kind": "K", "name": name, "uid": "group-uid" if name == "flights" else "another-uid"}
        for name in owners
    ]
    claim = replace(unowned_claim(), owner_references=references)
    api = Applied(made(claims("10Gi")), claims=[claim])
    spec = {"storage": {"size": "10Gi", "retain": {"whenDeleted": when_deleted}}}

    await reconcile(api, group_body(spec), IMAGES, now=NOW, led=True, voters=3)

    assert api.owned.get("data-flights-0") == expected


@pytest.mark.parametrize("error", [NotFoundError("gone"), ConflictError("changed"), None])
async def test_a_claim_that_changes_meanwhile_does_not_end_the_group(
    error: KubeError | None,
) -> None:
    api = Applied(made(claims("10Gi")), claims=[unowned_claim()])
    api.claims_raise = error
    spec = {"storage": {"size": "10Gi", "retain": {"whenDeleted": "Delete"}}}

    outcome = await reconcile(api, group_body(spec), IMAGES, now=NOW, led=True, voters=3)

    assert (outcome.problem, outcome.warning) == (None, None)


async def test_refused_owners_of_a_claim_are_reported_and_stop_nothing() -> None:
    api = Applied(made(claims("10Gi")), claims=[unowned_claim()])
    api.claims_raise = RefusedError("set the owners of data-flights-0: forbidden")
    spec = {"storage": {"size": "10Gi", "retain": {"whenDeleted": "Delete"}}}

    outcome = await reconcile(api, group_body(spec), IMAGES, now=NOW, led=True, voters=3)

    assert outcome.problem is None
    assert outcome.warning is not None
    assert "forbidden" in outcome.warning.message


async def test_volumes_grow_although_a_child_cannot_be_applied() -> None:
    """A volume that is full stops the group; a Service that cannot be written does not."""
    grown = []

    class Failing(Applied):
        async def apply(self, manifest: Manifest) -> None:
            raise UnavailableError("a webhook does not answer")

        async def grow_volume_claim(self, *of: object) -> None:
            grown.append(of)

    claim = replace(unowned_claim(), requested="10Gi", capacity="10Gi")
    api = Failing(made(claims("10Gi")), claims=[claim])
    spec = {"storage": {"size": "20Gi"}}

    with pytest.raises(UnavailableError):
        await reconcile(api, group_body(spec), IMAGES, now=NOW, led=True, voters=3)

    assert grown == [(claim, "20Gi", None)]


async def test_children_are_applied_although_a_claim_cannot_be_changed() -> None:
    claim = replace(unowned_claim(), requested="10Gi", capacity="10Gi")

    class Api(Applied):
        async def grow_volume_claim(self, *_: object) -> None:
            raise UnavailableError("the webhook does not answer")

    api = Api(made(claims("10Gi")), claims=[claim])
    with pytest.raises(UnavailableError):
        await reconcile(
            api, group_body({"storage": {"size": "20Gi"}}), IMAGES, now=NOW, led=True, voters=3
        )

    assert api.kinds[-1] == "StatefulSet"


async def test_a_policy_that_may_not_be_deleted_is_a_warning_and_the_spec_is_in_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = [child("NetworkPolicy", f"flights-{each}") for each in ("members", "audits")]
    api, tried = Applied(found=policies), list[str]()

    async def refuse(_: str, policy: ChildView) -> None:
        tried.append(policy.name)
        raise RefusedError(f"delete NetworkPolicy air/{policy.name}: forbidden")

    monkeypatch.setattr(api, "delete_network_policy", refuse, raising=False)
    outcome = await reconcile(api, group_body(), IMAGES, now=NOW, led=False, voters=3)

    assert (outcome.problem, outcome.shape is None) == (None, False)
    assert outcome.warning is not None
    assert outcome.warning.reason == "ChildRefused"
    assert tried == ["flights-members", "flights-audits"]
