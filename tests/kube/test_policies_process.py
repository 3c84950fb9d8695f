"""The NetworkPolicies of a group on a real API server: made, put back, removed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API, Namespace, Object
from dledger_kube.objects import IMAGES, NOW
from dledger_kube.operated import operated
from dledger_kube.played import Cluster
from dledger_operator import names
from dledger_operator.behaviors.children.reconcile import ReconcileResult, reconcile
from dledger_operator.behaviors.rolls.permission import Cause
from dledger_operator.clients.kubernetes import KubeApi

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]
NETWORKING = "/apis/networking.k8s.io/v1"
GUARDED = replace(IMAGES, operator_namespace="dledger-system")
PUT_BACK_S_MAX = 5.0


def policies(namespace: Namespace) -> dict[str, Object]:
    items = namespace.get("networkpolicies", group=NETWORKING)["items"]
    return {each["metadata"]["name"]: each for each in items}


async def reconciled(api: KubeApi, body: Object, **spec: Any) -> str:
    """Reconcile with a changed spec; return the reason of the problem, empty without one."""
    asked = {**body, "spec": {**body["spec"], **spec}}
    outcome = await reconcile(api, asked, GUARDED, now=NOW, led=True, voters=3)
    return outcome.problem.reason if outcome.problem else ""


async def test_policies_come_and_go_with_the_spec(api: KubeApi, namespace: Namespace) -> None:
    body = namespace.make_group()

    assert await reconciled(api, body) == ""
    assert set(policies(namespace)) == {"flights-members", "flights-audits"}
    off = {"networkPolicy": {"enabled": False}}
    await asyncio.to_thread(namespace.patch, "dledgergroups", "flights", {"spec": off}, API)
    assert await reconciled(api, namespace.get("dledgergroups", "flights", API)) == ""
    assert policies(namespace) == {}


async def outcome_of_upgrade(api: KubeApi, body: Object) -> ReconcileResult:
    """Reconcile as an operator whose former release made no policies."""
    return await reconcile(api, body, GUARDED, now=NOW, led=True, voters=3)


async def test_the_first_policies_wait_for_the_approval_of_a_change_of_the_spec(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group(updatePolicy="OnApproval")
    await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)
    assert policies(namespace) == {}
    change: Object = {"spec": {"podLabels": {"team": "air"}}}
    body = await asyncio.to_thread(namespace.patch, "dledgergroups", "flights", change, API)

    held = (await outcome_of_upgrade(api, body)).held

    assert held is not None
    assert held.cause is Cause.SPEC
    assert policies(namespace) == {}
    approval: Object = {
        "metadata": {"annotations": {names.APPROVED_REVISION_ANNOTATION: held.revision.name}}
    }
    body = await asyncio.to_thread(namespace.patch, "dledgergroups", "flights", approval, API)
    assert (await outcome_of_upgrade(api, body)).held is None
    assert set(policies(namespace)) == {"flights-members", "flights-audits"}


async def test_a_policy_that_somebody_deletes_is_made_again_while_a_change_is_held(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group(updatePolicy="OnApproval")
    assert await reconciled(api, body) == ""
    change: Object = {"spec": {"podLabels": {"team": "air"}}}
    body = await asyncio.to_thread(namespace.patch, "dledgergroups", "flights", change, API)
    path = namespace.path("networkpolicies", "flights-members", NETWORKING)
    await asyncio.to_thread(namespace.server.request, "DELETE", path)

    assert (await outcome_of_upgrade(api, body)).held is not None

    assert set(policies(namespace)) == {"flights-members", "flights-audits"}


async def test_somebody_elses_policy_is_left_alone_and_named_if_the_group_needs_its_name(
    api: KubeApi, namespace: Namespace
) -> None:
    sent = {"metadata": {"name": "flights-audits"}, "spec": {"podSelector": {}}}
    path = namespace.path("networkpolicies", group=NETWORKING)
    made = namespace.server.request("POST", path, sent)

    assert await reconciled(api, namespace.make_group()) == "NameTaken"
    off = {"networkPolicy": {"enabled": False}}
    body = await asyncio.to_thread(namespace.patch, "dledgergroups", "flights", {"spec": off}, API)
    assert await reconciled(api, body) == ""

    left = policies(namespace)
    assert {name: each["metadata"] for name, each in left.items()} == {
        "flights-audits": made["metadata"]
    }


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_the_operator_puts_back_a_policy_that_somebody_edits_or_deletes(
    cluster: Cluster,
) -> None:
    namespace = cluster.namespace
    cluster.operator.stop()
    cluster.operator.environment["DLEDGER_OPERATOR_NETWORK_POLICIES"] = "true"
    cluster.operator.start()
    await cluster.create_group()
    made = (await asyncio.to_thread(policies, namespace))["flights-members"]["spec"]

    def is_back() -> bool:
        return policies(namespace).get("flights-members", {}).get("spec") == made

    edit = {"spec": {"ingress": [{}]}}
    await asyncio.to_thread(namespace.patch, "networkpolicies", "flights-members", edit, NETWORKING)
    await cluster.until("the edit is undone", is_back, PUT_BACK_S_MAX)
    path = namespace.path("networkpolicies", "flights-members", NETWORKING)
    await asyncio.to_thread(namespace.server.request, "DELETE", path)
    await cluster.until("the policy is back", is_back, PUT_BACK_S_MAX)
