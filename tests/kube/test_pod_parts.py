"""Secrets, variables, sidecars and placement of pods, and ports of Services."""

from typing import Any

import pytest

from api_server.objects import Object
from dledger_kube.cluster import API, Namespace
from dledger_kube.objects import IMAGES, NOW, audit_body, group, group_body
from dledger_kube.wrong_specs.pods import sidecar
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.behaviors.rolls.permission import applied_spec
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.resources import audit_job, children, client_service, stateful_set
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import TEMPLATE, why_behind
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"
NEW = Shape.of_new(3)
AWAY = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": names.GROUP_LABEL}
SIDECAR: Object = {
    "name": "proxy",
    "image": "proxy:1",
    "ports": [{"name": "proxy", "containerPort": 8080}],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": True},
        {"name": "cache", "mountPath": "/cache"},
    ],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
}
EVERYTHING: Object = {
    "imagePullSecrets": [{"name": "registry"}],
    "podSecurity": {"user": "Cluster"},
    "env": [
        {"name": "TZ", "value": "UTC"},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "sidecars": {"containers": [SIDECAR], "volumes": [{"name": "cache", "emptyDir": {}}]},
    "scheduling": {
        "zoneSpread": "Hard",
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AWAY]}},
    },
    "services": {
        "master": {
            "type": "LoadBalancer",
            "nodePort": 30911,
            "loadBalancerClass": "example.com/internal",
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
        },
    },
}


def pod_spec(of: Group) -> Manifest:
    spec: Manifest = stateful_set.build(of, NEW)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    "spec",
    [
        {"env": [{"name": "DLEDGER_PEERS", "value": "n0-a:1"}]},
        {"env": [{"name": "POD_INDEX"}]},
        sidecar(name="node"),
        sidecar(ports=[{"containerPort": 40912}]),
        sidecar(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        {"sidecars": {"volumes": [{"name": "settings"}]}},
        {"imagePullSecrets": [{}]},
    ],
    ids=str,
)
def test_the_operator_refuses_it_in_a_stored_group_too(spec: Object) -> None:
    with pytest.raises(InvalidSpecError):
        group(**spec)


@pytest.mark.parametrize(
    "key", ["imagePullSecrets", "podSecurity", "env", "sidecars", "scheduling"]
)
def test_a_change_of_a_part_is_rolled_out_as_a_change_of_the_spec(key: str) -> None:
    plain, changed = group(), group(**{key: EVERYTHING[key]})

    why = why_behind(children.revision(plain, NEW), children.revision(changed, NEW))

    assert why == TEMPLATE
    spec = group_body({key: EVERYTHING[key]})
    assert applied_spec(spec).digest != applied_spec(group_body()).digest


def test_a_group_without_parts_names_none_of_them() -> None:
    spec = pod_spec(group())

    assert "imagePullSecrets" not in spec
    assert [each["name"] for each in spec["containers"]] == ["node"]
    assert [each["name"] for each in spec["volumes"]] == ["settings", "admin-token"]
    assert spec["securityContext"]["runAsUser"] == 10001


def test_a_pod_whose_user_the_cluster_chooses_still_never_runs_as_root() -> None:
    security = pod_spec(group(podSecurity={"user": "Cluster"}))["securityContext"]

    assert security["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & security.keys()


def test_the_identity_reaches_only_the_members_container_of_a_held_template() -> None:
    template = stateful_set.build(group(**EVERYTHING), NEW)["spec"]["template"]
    known = Shape(
        first_voters=3, state=NEW.state, pods=3, voters=3, identity="aa-bb"
    )  # fmt: skip

    node, proxy = stateful_set.with_identity(template, known)["spec"]["containers"]

    assert {"name": "DLEDGER_GROUP_IDENTITY", "value": "aa-bb"} in node["env"]
    assert not proxy.get("env")


@pytest.mark.parametrize(
    ("scheduling", "keys", "prefers"),
    [
        ({}, ["kubernetes.io/hostname"], True),
        ({"zoneSpread": "Off"}, ["kubernetes.io/hostname"], False),
        ({"zoneSpread": "Hard"}, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], False),
        ({"topologySpread": "Off"}, [], False),
        ({"topologySpread": "Off", "zoneSpread": "Hard"}, ["topology.kubernetes.io/zone"], False),
    ],
)
def test_members_are_spread_as_the_spec_asks(
    scheduling: dict[str, str], keys: list[str], prefers: bool
) -> None:
    spec = pod_spec(group(scheduling=scheduling))

    assert [each["topologyKey"] for each in spec.get("topologySpreadConstraints", [])] == keys
    assert ("affinity" in spec) == prefers


def test_the_preference_for_other_zones_is_added_to_the_affinity_of_the_spec() -> None:
    term = {"weight": 7, "podAffinityTerm": AWAY}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    of = group(scheduling={"affinity": {"podAntiAffinity": {preferred: [term]}}})

    first, second = pod_spec(of)["affinity"]["podAntiAffinity"][preferred]

    assert first == term
    assert second["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"


def test_a_service_says_only_what_its_type_has_a_use_for() -> None:
    plain = client_service.build_slave(group(**EVERYTHING))["spec"]
    balanced = client_service.build_master(group(**EVERYTHING))["spec"]

    assert "nodePort" not in plain["ports"][0]
    assert balanced["ports"][0]["nodePort"] == 30911
    assert balanced["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


def test_audits_pull_images_and_run_as_their_group_does() -> None:
    job = audit_job.build(
        AuditRequest.from_body(audit_body()), group(**EVERYTHING), member_ids=["n0"],
        image="dledger-audit:1", image_pull_policy="Always",
    )  # fmt: skip

    spec = job["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "runAsUser" not in spec["securityContext"]


async def test_a_real_server_takes_every_part(api: KubeApi, namespace: Namespace) -> None:
    body = namespace.make_group(**EVERYTHING)

    outcome = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    assert outcome.problem is None
    made = namespace.get("statefulsets", "flights", APPS)["spec"]["template"]["spec"]
    assert [each["name"] for each in made["containers"]] == ["node", "proxy"]
    assert namespace.get("services", "flights-master")["spec"]["ports"][0]["nodePort"] == 30911


async def test_a_part_that_kubernetes_refuses_is_named_and_changes_nothing_else(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    before = namespace.get("statefulsets", "flights", APPS)["spec"]["template"]
    wrong: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    change = {"spec": {"scheduling": {"affinity": wrong}}}
    body = namespace.patch("dledgergroups", "flights", change, API)

    outcome = await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)

    assert outcome.problem is not None
    assert outcome.problem.reason == "ChildRefused"
    assert "nodeSelectorTerms" in outcome.problem.message
    assert namespace.get("statefulsets", "flights", APPS)["spec"]["template"] == before
