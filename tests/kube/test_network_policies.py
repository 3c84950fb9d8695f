"""Who may connect to members and audits, by the NetworkPolicies of a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, audit_body, group_body
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import audit_job, children
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

GUARDED = replace(IMAGES, operator_namespace="dledger-system")
OPERATOR_LABELS = {
    "app.kubernetes.io/component": "operator",
    "app.kubernetes.io/part-of": "dledger",
}
REMOTING, HTTP = names.REMOTING_PORT, names.HTTP_PORT
BOTH, NEITHER = {REMOTING, HTTP}, set[int]()


def guarded(**spec: Any) -> Group:
    return Group.from_body(group_body(spec), GUARDED)


def built(of: Group, kind: str, name: str) -> Manifest:
    return next(
        each
        for each in children.build(of, Shape.of_new(of.replicas))
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


@dataclass(frozen=True)
class Source:
    """Something that connects: a pod, or, without a namespace, an address outside the cluster."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def matches(peer: Manifest, source: Source, policy_namespace: str) -> bool:
    """Judge one peer of a policy as Kubernetes does."""
    if not source.namespace:
        return False
    where, which = peer.get("namespaceSelector"), peer.get("podSelector", {})
    if where is None:
        in_place = source.namespace == policy_namespace
    else:
        wanted = where.get("matchLabels", {})
        in_place = wanted.items() <= {"kubernetes.io/metadata.name": source.namespace}.items()
    return in_place and which.get("matchLabels", {}).items() <= dict(source.labels).items()


def open_ports(policy: Manifest, source: Source) -> set[int]:
    """Return the ports of the policy's pods to which a source may connect."""
    rules = policy["spec"]["ingress"]
    return {
        port["port"]
        for rule in rules
        for port in rule["ports"]
        if "from" not in rule
        or any(matches(peer, source, policy["metadata"]["namespace"]) for peer in rule["from"])
    }


MEMBER = Source("air", {names.GROUP_LABEL: "flights"})
OPERATOR = Source("dledger-system", OPERATOR_LABELS)
IMPOSTOR = Source("shop", OPERATOR_LABELS)
NEIGHBOUR = Source("dledger-system", {"app": "other"})
AUDIT = Source("air", {names.AUDITED_GROUP_LABEL: "flights"})
SAME_NAMESPACE = Source("air", {"app": "producer"})
OTHER_NAMESPACE = Source("shop", {"app": "producer"})
OUTSIDE = Source()
PROMETHEUS = Source("monitoring", {"app": "prometheus"})


@pytest.mark.parametrize(
    ("source", "ports"),
    [
        (MEMBER, BOTH),
        (OPERATOR, BOTH),
        (AUDIT, BOTH),
        (SAME_NAMESPACE, BOTH),
        (OTHER_NAMESPACE, NEITHER),
        (IMPOSTOR, NEITHER),
        (NEIGHBOUR, NEITHER),
        (PROMETHEUS, NEITHER),
        (OUTSIDE, NEITHER),
    ],
)
def test_by_default_strangers_reach_no_port_of_a_member(source: Source, ports: set[int]) -> None:
    assert open_ports(built(guarded(), "NetworkPolicy", "flights-members"), source) == ports


@pytest.mark.parametrize(
    ("spec", "source", "ports"),
    [
        ({"clients": "Listed"}, SAME_NAMESPACE, NEITHER),
        ({"clients": "Listed"}, MEMBER, BOTH),
        ({"clients": "Listed"}, OPERATOR, BOTH),
        ({"clients": "Listed"}, AUDIT, {HTTP}),
        ({"clients": "Listed", "clientNamespaces": ["shop"]}, OTHER_NAMESPACE, {REMOTING}),
        ({"clientNamespaces": ["shop"]}, OTHER_NAMESPACE, {REMOTING}),
        ({"clientNamespaces": ["shop"]}, PROMETHEUS, NEITHER),
        ({"clients": "Cluster"}, OTHER_NAMESPACE, {REMOTING}),
        ({"clients": "Cluster"}, OUTSIDE, NEITHER),
        ({"clients": "Anywhere"}, OUTSIDE, {REMOTING}),
        ({"monitoringNamespaces": ["monitoring"]}, PROMETHEUS, {HTTP}),
        ({"monitoringNamespaces": ["monitoring"]}, OTHER_NAMESPACE, NEITHER),
    ],
)
def test_the_spec_says_who_else_may_connect(
    spec: Mapping[str, Any], source: Source, ports: set[int]
) -> None:
    policy = built(guarded(networkPolicy=spec), "NetworkPolicy", "flights-members")

    assert open_ports(policy, source) == ports


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
@pytest.mark.parametrize("service", ["master", "slave"])
def test_a_service_to_the_outside_opens_the_port_of_clients_alone(kind: str, service: str) -> None:
    policy = built(guarded(services={service: {"type": kind}}), "NetworkPolicy", "flights-members")

    assert open_ports(policy, OUTSIDE) == {REMOTING}


def test_the_policies_select_the_pods_that_they_are_for_and_no_others() -> None:
    of = guarded()
    members = built(of, "StatefulSet", "flights")["spec"]["template"]["metadata"]["labels"]
    job = audit_job.build(
        AuditRequest.from_body(audit_body()),
        of,
        member_ids=["n0"],
        image="audit",
        image_pull_policy="Always",
    )
    audits = job["spec"]["template"]["metadata"]["labels"]

    for name, selected, other in (
        ("flights-members", members, audits),
        ("flights-audits", audits, members),
    ):
        wanted = built(of, "NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]
        assert wanted.items() <= selected.items()
        assert not wanted.items() <= other.items()


def test_nobody_connects_to_an_audit_and_it_connects_to_members_alone() -> None:
    policy = built(guarded(), "NetworkPolicy", "flights-audits")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    names_rule, members_rule = policy["egress"]
    assert {(each["protocol"], each["port"]) for each in names_rule["ports"]} == {
        ("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353),
    }  # fmt: skip
    (to,) = members_rule["to"]
    assert to == {"podSelector": {"matchLabels": {names.GROUP_LABEL: "flights"}}}
    assert [each["port"] for each in members_rule["ports"]] == [HTTP]


@pytest.mark.parametrize(
    "of",
    [guarded(networkPolicy={"enabled": False}), Group.from_body(group_body(), IMAGES)],
    ids=["the spec wants none", "the operator does not know where it is"],
)
def test_a_group_may_have_no_policies(of: Group) -> None:
    kinds = {each["kind"] for each in children.build(of, Shape.of_new(of.replicas))}

    assert "NetworkPolicy" not in kinds


def test_the_policies_change_no_pod() -> None:
    shape = Shape.of_new(3)

    assert children.revision(guarded(), shape) == children.revision(
        guarded(networkPolicy={"clients": "Cluster"}), shape
    )
