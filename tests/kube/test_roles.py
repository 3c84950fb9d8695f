"""Role labels follow the Services as applied, not a spec that is paused or refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.objects import group, leads, membership, pod, says
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by
from dledger_operator import names
from dledger_operator.api_objects import ChildView, OwnerView, PodView
from dledger_operator.behaviors.children.roles import (
    conflict,
    differ,
    roles_in_force,
    to_apply,
)
from dledger_operator.behaviors.leader.role_decision import decide
from dledger_operator.resources import client_service
from dledger_operator.spec.group import Group, Roles

pytest_plugins = ["api_server.fixtures"]

MASTER_SLAVE = {"master": "master", "slave": "slave"}
NEW = {"label": "example.com/part", "master": "rw", "slave": "ro"}


def service(of: Group, **fields: Any) -> ChildView:
    """The master Service as the operator applied it for this group."""
    made = client_service.build_master(of)
    values: dict[str, Any] = {
        "kind": "Service",
        "name": "flights-master",
        "uid": "service-uid",
        "owners": [OwnerView(kind="DLedgerGroup", name="flights", uid="group-uid")],
        "labels": {},
        "leaving": False,
        "annotations": made["metadata"]["annotations"],
        "selector": made["spec"]["selector"],
    }
    return ChildView(**values | fields)


all_roles = st.builds(
    lambda label, values: {"label": label, "master": values[0], "slave": values[1]},
    st.sampled_from(["dledger.io/role", "example.com/part", "tier"]),
    st.permutations(["master", "slave", "rw", "ro"]),
)


@given(all_roles, all_roles)
def test_what_a_service_was_applied_with_is_read_back(
    applied: dict[str, str], wanted: dict[str, str]
) -> None:
    found = service(group(roles=applied))

    assert roles_in_force(found, group(roles=wanted)) == group(roles=applied).roles


def test_a_selector_that_somebody_edits_changes_no_role() -> None:
    found = service(group(), selector={names.GROUP_LABEL: "flights", names.ROLE_LABEL: "slave"})

    assert roles_in_force(found, group(roles=NEW)) == group().roles


def test_a_service_of_an_earlier_release_tells_its_roles_by_its_selector() -> None:
    assert roles_in_force(service(group(), annotations={}), group(roles=NEW)) == Roles(
        label="dledger.io/role", master="master", slave="ro"
    )


SWAPPED = {"label": "dledger.io/role", "master": "slave", "slave": "master", "former": []}


def edited(value: object) -> dict[str, str]:
    return {names.ROLES_ANNOTATION: value if isinstance(value, str) else json.dumps(value)}


@pytest.mark.parametrize(
    "record",
    [
        SWAPPED,
        {**SWAPPED, "master": "rw"},
        {**SWAPPED, "label": "dledger.io/group"},
        {**SWAPPED, "master": "none"},
        {**SWAPPED, "master": "master", "slave": "master"},
        {**SWAPPED, "master": {"a": 1}},
        {**SWAPPED, "label": "x" * 5000},
        "[" * 100_000,
        "[" * 4_000,
        "7",
    ],
)
def test_a_record_that_somebody_edits_is_put_back(record: object) -> None:
    found = service(group(), annotations=edited(record))
    in_force = roles_in_force(found, group())

    assert in_force == group().roles
    assert conflict(group().roles, in_force, [pod(0, "slave"), pod(1, "master")]) is None


def test_former_labels_of_an_edited_record_take_no_other_label_from_pods() -> None:
    former = [
        "example.com/part", "dledger.io/group", "app.kubernetes.io/name", "tier", 7, "tier", "-",
        "controller-revision-hash", ["x"],
    ]  # fmt: skip
    found = service(group(), annotations=edited({**SWAPPED, **MASTER_SLAVE, "former": former}))

    assert roles_in_force(found, group(podLabels={"tier": "web"})).former == ("example.com/part",)
    assert roles_in_force(found, group()).former == ("example.com/part", "tier")
    wrong = service(group(), annotations=edited({**SWAPPED, **MASTER_SLAVE, "former": "tier"}))
    assert roles_in_force(wrong, group()) == group().roles


def test_somebody_elses_service_says_nothing() -> None:
    foreign = service(group(), owners=[OwnerView(kind="Deployment", name="web", uid="x")])

    assert roles_in_force(foreign, group(roles=NEW)) == group(roles=NEW).roles


def test_the_labels_of_earlier_roles_are_remembered_but_for_those_of_the_spec() -> None:
    before = replace(group().roles, former=("tier",))

    assert to_apply(group(roles=NEW), before).former == ("dledger.io/role", "tier")
    assert to_apply(group(roles=NEW, podLabels={"tier": "x"}), before).former == (
        "dledger.io/role",
    )


def test_master_and_slave_cannot_be_swapped() -> None:
    swapped = group(roles={"master": "slave", "slave": "master"}).roles

    problem = conflict(swapped, group().roles, [])
    assert problem is not None
    assert problem.reason == "RoleInUse"


@given(all_roles, all_roles, st.integers(0, 2), st.booleans())
def test_no_change_of_roles_ever_shows_a_second_master(
    before: dict[str, str], wanted: dict[str, str], leader: int, crashed: bool
) -> None:
    """Play the change step by step; the master Service selects the leader's pod or none."""
    old, new = group(roles=before), group(roles=wanted)
    pods = settled([pod(ordinal) for ordinal in range(3)], old, leader, ends_at=None)
    in_force = old.roles
    if conflict(new.roles, in_force, pods) is not None:
        return
    applied = replace(new, roles=to_apply(new, in_force))
    assert selected(pods, applied.roles) <= {f"n{leader}"}, "the Service has changed, no pod yet"
    if crashed:  # the operator starts anew and knows the roles from the Service alone
        applied = replace(new, roles=roles_in_force(service(applied), new))

    pods = settled(pods, applied, leader, ends_at=f"n{leader}")

    assert selected(pods, applied.roles) == {f"n{leader}"}
    if differ(old.roles, applied.roles) and old.roles.label != applied.roles.label:
        assert not any(old.roles.label in each.labels for each in pods), "the old label is gone"


def selected(pods: list[PodView], roles: Roles) -> set[str]:
    return {each.member_id for each in pods if each.role(roles) == roles.master}


def settled(pods: list[PodView], of: Group, leader: int, ends_at: str | None) -> list[PodView]:
    """Apply decisions, one patch at a time, until none is left."""
    said = [leads(leader, 7), *(says(k, 7, f"n{leader}") for k in range(3) if k != leader)]
    while patches := decide(
        pods=pods, observations=said, group=of, membership=membership(), not_following=frozenset()
    ).patches:
        for patch in patches:
            kept = {
                key: value for key, value in patch.pod.labels.items() if key not in of.roles.former
            }
            labeled = replace(
                patch.pod,
                labels={**kept, of.roles.label: patch.role},
                term=patch.term,
                leader_pod_uid=patch.leader_pod_uid,
            )
            pods = [labeled if each.uid == labeled.uid else each for each in pods]
            assert len(selected(pods, of.roles)) <= 1
            assert ends_at is None or selected(pods, of.roles) <= {ends_at}
    return pods


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A group that n1 leads."""
    async with operated(api_server, tmp_path, members=3) as parts:
        cluster = Cluster(*parts)
        await cluster.create_group()
        await cluster.elect(1, 7)
        await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
        yield cluster


def labels(cluster: Cluster, key: str) -> dict[str, str]:
    pods = cluster.namespace.get("pods")["items"]
    return {each["metadata"]["name"]: each["metadata"]["labels"].get(key, "") for each in pods}


async def change(cluster: Cluster, spec: dict[str, Any]) -> None:
    await asyncio.to_thread(
        cluster.namespace.patch, "dledgergroups", "flights", {"spec": spec}, API
    )


NEW_ROLES = {"flights-0": "ro", "flights-1": "rw", "flights-2": "ro"}


async def test_a_paused_change_moves_no_label_until_it_is_applied(cluster: Cluster) -> None:
    await change(cluster, {"paused": True, "roles": NEW})
    await cluster.until(
        "the change is seen", lambda: cluster.condition("Paused")["status"] == "True"
    )
    cluster.operator.kill()
    cluster.operator.start()
    await cluster.elect(2, 8)
    await cluster.until("the old label follows n2", lambda: cluster.roles() == led_by(2))
    assert set(labels(cluster, NEW["label"]).values()) == {""}

    await change(cluster, {"paused": False})
    wanted = {"flights-0": "ro", "flights-1": "ro", "flights-2": "rw"}
    await cluster.until("the new label is there", lambda: labels(cluster, NEW["label"]) == wanted)

    assert set(cluster.roles().values()) == {""}, "the old label is gone"
    selector = cluster.namespace.get("services", "flights-master")["spec"]["selector"]
    assert selector[NEW["label"]] == "rw"
    metrics = (await asyncio.to_thread(cluster.operator.metrics)).splitlines()
    (doubles,) = [each for each in metrics if each.startswith("dledger_double_master_observed_t")]
    assert doubles.endswith(" 0.0")


async def test_a_refused_change_moves_no_label(cluster: Cluster) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "other"},
        "spec": {"type": "NodePort", "ports": [{"name": "taken", "port": 80}]},
    }
    namespace = cluster.namespace
    made = namespace.server.request("POST", namespace.path("services"), other)
    taken = {"type": "NodePort", "nodePort": made["spec"]["ports"][0]["nodePort"]}
    wrong = {"master": taken}
    await change(cluster, {"services": wrong, "roles": NEW})
    await cluster.until(
        "the refusal is reported", lambda: cluster.condition("Ready")["reason"] == "ChildRefused"
    )
    await cluster.elect(2, 8)

    await cluster.until("the old label follows n2", lambda: cluster.roles() == led_by(2))
    assert set(labels(cluster, NEW["label"]).values()) == {""}
    slave = cluster.namespace.get("services", "flights-slave")
    assert slave["spec"]["selector"][names.ROLE_LABEL] == "slave", "both Services or none"


async def test_swapped_roles_wait_and_say_why(cluster: Cluster) -> None:
    await change(cluster, {"roles": {"master": "slave", "slave": "master"}})
    await cluster.until(
        "the refusal is reported", lambda: cluster.condition("Ready")["reason"] == "RoleInUse"
    )

    assert cluster.roles() == led_by(1)
    kept = cluster.namespace.get("services", "flights-master")
    assert kept["spec"]["selector"][names.ROLE_LABEL] == "master"
    assert json.loads(kept["metadata"]["annotations"][names.ROLES_ANNOTATION])["slave"] == "slave"
