"""An audit with executors on a real API server: what is made for it, and what its driver may do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_formats.audit import Verdict
from dledger_kube.operated import operated
from dledger_kube.operator_account import audit_driver_role
from dledger_kube.played import Cluster
from dledger_kube.played_audits import BATCH, PlayedAudits

pytest_plugins = ["api_server.fixtures"]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


def may(
    cluster: Cluster, account: str, verb: str, resource: str, *, name: str = "", group: str = "",
    namespace: str = "",
) -> bool:  # fmt: skip
    """Ask the API server what a ServiceAccount of the namespace may do."""
    own = cluster.namespace.name
    asked = {
        "namespace": namespace or own, "verb": verb, "resource": resource, "name": name,
        "group": group,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{own}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": asked,
        },
    }
    answer = cluster.namespace.server.request("POST", REVIEWS, review)
    return bool(answer["status"]["allowed"])


async def test_the_driver_may_make_pods_in_its_namespace_and_nothing_else(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first", executors={"max": 2})
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})

    pod = cluster.namespace.get("jobs", "first-audit", BATCH)["spec"]["template"]["spec"]
    account = pod["serviceAccountName"]
    uid = audits.all()["first"]["metadata"]["uid"]
    assert account == f"first-audit-{uid[:8]}"
    for kind, group in (("serviceaccounts", "/api/v1"), ("rolebindings", RBAC)):
        (owned_by,) = cluster.namespace.get(kind, account, group)["metadata"]["ownerReferences"]
        assert owned_by["uid"] == uid
    for verb in ("get", "list", "watch", "create", "delete", "deletecollection"):
        assert may(cluster, account, verb, "pods"), verb
    assert not may(cluster, account, "patch", "pods")
    assert not may(cluster, account, "create", "pods", namespace="default")
    for resource in ("secrets", "configmaps", "serviceaccounts", "services"):
        assert not any(may(cluster, account, verb, resource) for verb in ("get", "list", "create"))
    for resource in ("pods/exec", "pods/eviction", "serviceaccounts/token"):
        assert not may(cluster, account, "create", resource), resource
    assert not may(cluster, "default", "create", "pods"), "executors have the account default"


async def test_the_operator_grants_this_role_and_makes_no_pods_itself(cluster: Cluster) -> None:
    rbac = "rbac.authorization.k8s.io"
    name = audit_driver_role(cluster.namespace.name).removeprefix("Role/")
    operator = "the-operator"

    assert may(cluster, operator, "bind", "roles", name=name, group=rbac)
    assert not may(cluster, operator, "bind", "roles", name="other", group=rbac)
    assert not may(cluster, operator, "bind", "clusterroles", name="admin", group=rbac)
    assert not may(cluster, operator, "create", "roles", group=rbac)
    assert not may(cluster, operator, "create", "pods")


async def test_an_audit_without_executors_gets_no_account(cluster: Cluster) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first")
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})

    accounts = cluster.namespace.get("serviceaccounts")["items"]
    assert not [each for each in accounts if each["metadata"]["name"].startswith("first")]
    assert cluster.namespace.get("rolebindings", group=RBAC)["items"] == [
        each
        for each in cluster.namespace.get("rolebindings", group=RBAC)["items"]
        if each["metadata"]["name"].startswith(cluster.namespace.name)
    ]


def pods(cluster: Cluster) -> set[str]:
    """The names of the pods that nobody has deleted, but those of members."""
    found = [each["metadata"] for each in cluster.namespace.get("pods")["items"]]
    return {
        each["name"]
        for each in found
        if "deletionTimestamp" not in each and not each["name"].startswith("flights-")
    }


async def test_executors_of_a_driver_that_has_died_are_deleted_and_no_others(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first", executors={"max": 2})
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})
    await audits.begin("first", "2026-01-01T00:00:00Z")
    await audits.begin_executor("first", "old")
    executor = cluster.namespace.get("pods", "old")
    stranger = {"metadata": {"labels": executor["metadata"]["labels"]}, "spec": executor["spec"]}
    await audits.create_pod("stranger", stranger)
    await cluster.until("it runs", lambda: audits.reason("first") == "WaitingForExecutors")

    await audits.lose("first")
    await audits.begin("first", "2026-01-01T00:00:00Z", pod="second")
    await audits.begin_executor("first", "new", driver="second")
    await cluster.until("the dead driver has no executor", lambda: "old" not in pods(cluster), 60)
    assert pods(cluster) == {"first-audit-first", "first-audit-second", "new", "stranger"}

    await audits.end("first", Verdict.SOUND, "2026-01-01T00:01:00Z", pod="second")
    await cluster.until("the audit ends", lambda: audits.reason("first") == "Sound", 60)
    assert pods(cluster) == {"first-audit-first", "first-audit-second", "stranger"}


async def test_the_account_of_an_audit_that_has_ended_may_do_nothing(cluster: Cluster) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first", executors={"max": 2})
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})
    template = cluster.namespace.get("jobs", "first-audit", BATCH)["spec"]["template"]
    account = template["spec"]["serviceAccountName"]
    await audits.begin("first", "2026-01-01T00:00:00Z")
    assert may(cluster, account, "create", "pods")

    await audits.end("first", Verdict.SOUND, "2026-01-01T00:01:00Z")
    await cluster.until("the audit ends", lambda: audits.reason("first") == "Sound", 60)

    await cluster.until(
        "the account has no permission", lambda: not may(cluster, account, "create", "pods")
    )
    assert "subjects" not in cluster.namespace.get("rolebindings", account, RBAC)


async def test_the_driver_uses_the_pull_secrets_of_the_default_account(cluster: Cluster) -> None:
    audits = PlayedAudits(cluster.namespace)
    cluster.namespace.patch("serviceaccounts", "default", {"imagePullSecrets": [{"name": "mine"}]})
    await cluster.create_group()
    await audits.ask("first", executors={"max": 2})
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})

    template = cluster.namespace.get("jobs", "first-audit", BATCH)["spec"]["template"]
    account = cluster.namespace.get("serviceaccounts", template["spec"]["serviceAccountName"])
    assert account["imagePullSecrets"] == [{"name": "mine"}]
