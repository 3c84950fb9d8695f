"""Requests to a real API server."""

import dataclasses
from pathlib import Path

import pytest

from api_server.client import ApiServer
from api_server.objects import group as group_object
from api_server.objects import stored
from dledger_kube.cluster import API, Namespace, parsed
from dledger_kube.objects import IMAGES, NOW, audit_body, observed_group
from dledger_operator import names
from dledger_operator.behaviors.audits.audit import build_status as build_audit_status
from dledger_operator.behaviors.audits.judging import Outcome
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.leader.member_pods import is_member
from dledger_operator.behaviors.report.event_recorder import EventNote, EventRecorder
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.clients.errors import (
    ConflictError,
    NotFoundError,
    NotServedError,
    RefusedError,
    UnavailableError,
)
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.observed_state import LeaderChange
from dledger_operator.resources import audit_job
from dledger_operator.spec.audit_request import AuditRequest

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]


async def test_applying_the_children_twice_changes_nothing(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    first = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    second = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    assert (first.problem, second.problem, second.warning) == (None, None, None)
    stateful_set = namespace.get("statefulsets", "flights", "/apis/apps/v1")
    assert stateful_set["metadata"]["generation"] == 1


async def test_a_child_changed_by_another_client_is_repaired(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    change = {"spec": {"selector": {"dledger.io/role": "slave"}}}
    namespace.patch("services", "flights-master", change)

    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    selector = namespace.get("services", "flights-master")["spec"]["selector"]
    assert selector == {"dledger.io/group": "flights", "dledger.io/role": "master"}


async def test_a_larger_volume_does_not_keep_other_changes_from_being_applied(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    body["spec"]["storage"]["size"] = "40Gi"
    body["spec"]["podAnnotations"] = {"note": "new"}

    outcome = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    assert outcome.problem is None
    assert outcome.warning is None
    spec = namespace.get("statefulsets", "flights", "/apis/apps/v1")["spec"]
    assert spec["template"]["metadata"]["annotations"]["note"] == "new"


async def test_the_founding_records_are_read_back(api: KubeApi, namespace: Namespace) -> None:
    body = namespace.make_group()
    assert await api.stateful_set(namespace.name, "flights") is None
    assert await api.settings(namespace.name, "flights-settings") is None

    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    made = await api.stateful_set(namespace.name, "flights")
    assert made is not None
    assert (made.replicas, made.first_voters) == (3, 3)
    settings = await api.settings(namespace.name, "flights-settings")
    assert settings is not None
    assert settings.data["DLEDGER_INITIAL_GROUP_STATE"] == "new"
    again = await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)
    assert (again.problem, again.warning) == (None, None)
    after = await api.settings(namespace.name, "flights-settings")
    assert after is not None
    assert after.data["DLEDGER_INITIAL_GROUP_STATE"] == "existing"


async def test_setting_replicas_conflicts_with_a_newer_version_of_the_stateful_set(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    seen = await api.stateful_set(namespace.name, "flights")
    assert seen is not None

    await api.set_replicas(seen, 5)
    with pytest.raises(ConflictError):
        await api.set_replicas(seen, 1)
    await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)

    after = await api.stateful_set(namespace.name, "flights")
    assert after is not None
    assert after.replicas == 5, "reconciling must not undo a scaling step"


async def test_a_child_refused_by_the_server_is_named(api: KubeApi, namespace: Namespace) -> None:
    body = namespace.make_group()
    body["spec"]["services"]["master"]["annotations"] = {"not a key!": "x"}

    outcome = await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    assert outcome.problem is not None
    assert "flights-master" in outcome.problem.message
    assert "not a key!" in outcome.problem.message


async def test_relabeling_conflicts_with_a_newer_version_of_the_pod(
    api: KubeApi, namespace: Namespace
) -> None:
    group = parsed(namespace.make_group())
    namespace.make_pod(group, 1)
    (listed,) = await api.member_pods(namespace.name, "flights")

    changed = await api.relabel_pod(listed, {"dledger.io/role": "master"}, {"dledger.io/term": "7"})

    assert (changed.role(group.roles), changed.term, changed.member_id) == ("master", 7, "n1")
    assert changed.resource_version != listed.resource_version
    with pytest.raises(ConflictError):
        await api.relabel_pod(listed, {"dledger.io/role": "none"}, {})
    again = await api.relabel_pod(changed, {"dledger.io/role": "none"}, {"dledger.io/term": "8"})
    assert again.term == 8


async def test_a_list_of_pods_may_come_from_the_cache_once_that_knows_what_was_read(
    api: KubeApi, namespace: Namespace
) -> None:
    namespace.make_pod(parsed(namespace.make_group()), 1)
    (listed,) = await api.member_pods(namespace.name, "flights")

    for term in range(20):
        written = await api.relabel_pod(listed, {}, {"dledger.io/term": str(term)})
        (listed,) = await api.member_pods(namespace.name, "flights", int(written.resource_version))
        assert listed == written


async def test_a_version_that_the_server_has_never_had_is_refused_for_now(
    api: KubeApi, namespace: Namespace
) -> None:
    namespace.make_pod(parsed(namespace.make_group()), 1)

    with pytest.raises(UnavailableError, match="Too large resource version"):
        await api.member_pods(namespace.name, "flights", 10**12)


async def test_a_replaced_pod_is_not_relabeled(api: KubeApi, namespace: Namespace) -> None:
    group = parsed(namespace.make_group())
    namespace.make_pod(group, 0)
    (listed,) = await api.member_pods(namespace.name, "flights")
    namespace.delete_pod("flights-0")

    with pytest.raises(NotFoundError):
        await api.relabel_pod(listed, {"dledger.io/role": "master"}, {})
    namespace.make_pod(group, 0)
    with pytest.raises(ConflictError):
        await api.relabel_pod(listed, {"dledger.io/role": "master"}, {})


async def test_a_pod_without_the_groups_stateful_set_as_owner_is_not_a_member(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    group = parsed(body)
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    made = await api.stateful_set(namespace.name, "flights")
    assert made is not None
    namespace.make_pod(group, 0)
    namespace.make_pod(dataclasses.replace(group, name="stranger"), 1)
    labels = {"metadata": {"labels": {"dledger.io/group": "flights"}}}
    namespace.patch("pods", "stranger-1", labels)

    listed = await api.member_pods(namespace.name, "flights")

    assert [(each.name, is_member(each, "flights", {made.uid})) for each in listed] == [
        ("flights-0", True), ("stranger-1", False),
    ]  # fmt: skip


async def test_a_complete_status_is_stored_as_it_was_sent(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    change = LeaderChange(
        from_member="n0", to_member="n1", term=7, reason="LeaderLost", at=NOW,
        detect_s=0.12, elect_s=0.31, relabel_s=0.05, endpoints_s=0.06,
    )  # fmt: skip
    sent = build_status(
        observed_group(), LeaderHistory([change]), generation=1, previous={}, now=NOW
    )

    await api.apply_status(names.GROUP_KIND, body, sent)

    assert (await api.group(namespace.name, "flights"))["status"] == sent


async def test_fields_missing_from_a_new_status_are_removed(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    for of in (observed_group(), observed_group(leader=None)):
        sent = build_status(of, LeaderHistory([]), generation=1, previous={}, now=NOW)
        await api.apply_status(names.GROUP_KIND, body, sent)

    assert "leader" not in (await api.group(namespace.name, "flights"))["status"]


async def test_writing_the_status_of_a_deleted_object_raises_not_found(
    api: KubeApi, api_server: ApiServer
) -> None:
    with stored(api_server, group_object()) as made:
        pass

    with pytest.raises(NotFoundError):
        await api.apply_status(names.GROUP_KIND, made, {"observedGeneration": 1})


async def test_the_job_and_the_status_of_an_audit_are_accepted(
    api: KubeApi, namespace: Namespace
) -> None:
    group = parsed(namespace.make_group())
    sent = audit_body()
    sent["metadata"] = {"namespace": namespace.name, "name": "monthly"}
    body = namespace.server.request("POST", namespace.path("dledgeraudits", group=API), sent)
    request = AuditRequest.from_body(body)
    assert await api.job(namespace.name, "monthly-audit") is None

    await api.apply(
        audit_job.build(
            request,
            group,
            member_ids=group.member_ids,
            image="audit:1",
            image_pull_policy="Never",
        )
    )

    job = await api.job(namespace.name, "monthly-audit")
    assert job is not None
    assert (job.owner_uid, job.ended) == (body["metadata"]["uid"], False)
    assert await api.job_pods(namespace.name, "monthly-audit", job.uid) == []
    outcome = Outcome(
        phase="Pending", reason="JobCreated", message="Job is starting", job="monthly-audit"
    )
    status = build_audit_status(outcome, generation=1, previous={}, now=NOW)
    await api.apply_status(names.AUDIT_KIND, body, status)
    assert namespace.get("dledgeraudits", "monthly", API)["status"] == status


async def test_an_event_is_created_and_then_counted(api: KubeApi, namespace: Namespace) -> None:
    body = namespace.make_group()
    recorder = EventRecorder(api, now=lambda: NOW)
    note = EventNote(severity="Normal", reason="LeaderChanged", message="n1 leads term 7")
    await recorder.record(names.GROUP_KIND, body, note)
    await recorder.record(names.GROUP_KIND, body, note)

    (event,) = namespace.get("events")["items"]
    assert (event["reason"], event["count"]) == ("LeaderChanged", 2)
    assert event["involvedObject"]["uid"] == body["metadata"]["uid"]


async def test_endpoints_are_read_from_all_slices_of_a_service(
    api: KubeApi, namespace: Namespace
) -> None:
    path = namespace.path("endpointslices", group="/apis/discovery.k8s.io/v1")
    for number, service in enumerate(("flights-master", "flights-master", "flights-slave")):
        endpoint = {
            "addresses": [f"192.0.2.{number + 1}"],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": f"flights-{number}"},
        }
        metadata = {"name": f"s{number}", "labels": {"kubernetes.io/service-name": service}}
        made = {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": [endpoint],
        }  # fmt: skip
        namespace.server.request("POST", path, made)

    found = await api.service_endpoints(namespace.name, "flights-master")

    assert sorted(view.pod for view in found) == ["flights-0", "flights-1"]


async def test_the_error_for_missing_crds_says_what_to_do(
    empty_api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(empty_api_server.kubeconfig))
    api = KubeApi.open()
    try:
        with pytest.raises(NotServedError, match="install the chart's CRDs first"):
            await api.check_served(None)
    finally:
        await api.close()


async def test_a_cluster_with_the_crds_passes_the_check(api: KubeApi, namespace: Namespace) -> None:
    await api.check_served(None)
    await api.check_served(namespace.name)


async def test_the_error_for_missing_permissions_says_what_to_do(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig_of("default", tmp_path)))
    api = KubeApi.open()
    try:
        with pytest.raises(RefusedError, match="grant the chart's role to the operator's account"):
            await api.check_served(namespace.name)
    finally:
        await api.close()


async def test_an_unreachable_server_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: c, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: c}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    api = KubeApi.open()
    try:
        with pytest.raises(UnavailableError, match="list the pods of air/flights"):
            await api.member_pods("air", "flights")
    finally:
        await api.close()
