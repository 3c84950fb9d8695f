"""The children of a group, and the Job of an audit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_audit import workers
from dledger_formats.settings import GroupState, NodeSettings
from dledger_kube.objects import audit_body, group
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import audit_job, children, pod_disruption_budget
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision, why_behind
from dledger_operator.spec.shape import Shape
from pyspark_dledger import bearer

GROUPS = st.builds(
    group,
    replicas=st.sampled_from([1, 3, 5, 7]),
    roles=st.sampled_from([{}, {"label": "example.com/part", "master": "rw", "slave": "ro"}]),
    podLabels=st.dictionaries(
        st.sampled_from(["team", names.GROUP_LABEL, names.MANAGED_BY_LABEL]), st.just("mine")
    ),
    scheduling=st.builds(
        dict,
        topologySpread=st.sampled_from(["Soft", "Hard", "Off"]),
        nodeSelector=st.sampled_from([{}, {"disk": "fast"}]),
    ),
)
CHART_README = Path(__file__).resolve().parents[2] / "helm" / "dledger-operator" / "README.md"
NEW = Shape.of_new(3)
properties = settings(max_examples=30)


def child(of: Group, kind: str, name: str) -> Manifest:
    return next(
        manifest
        for manifest in children.build(of, Shape.of_new(of.replicas))
        if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
    )


def pod_template(of: Group) -> Manifest:
    template: Manifest = child(of, "StatefulSet", "flights")["spec"]["template"]
    return template


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_the_command_of_the_charts_readme_deletes_the_volume_claims_of_every_group() -> None:
    claims = child(group(), "StatefulSet", "flights")["spec"]["volumeClaimTemplates"]
    selector = f"--all-namespaces --selector {names.GROUP_LABEL}\n"

    assert f"kubectl delete persistentvolumeclaims {selector}" in CHART_README.read_text()
    assert all(names.GROUP_LABEL in each["metadata"]["labels"] for each in claims)


@properties
@given(GROUPS)
def test_every_child_carries_its_groups_owner_reference_and_labels(of: Group) -> None:
    for manifest in children.build(of, Shape.of_new(of.replicas)):
        metadata = manifest["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("DLedgerGroup", of.uid, True)
        assert metadata["namespace"] == of.namespace
        assert metadata["labels"][names.GROUP_LABEL] == of.name
        assert metadata["labels"][names.MANAGED_BY_LABEL] == "dledger-operator"
        assert metadata["labels"]["app.kubernetes.io/instance"] == of.name


@properties
@given(GROUPS)
def test_the_selectors_match_the_pods_whatever_labels_a_user_adds(of: Group) -> None:
    labels = pod_template(of)["metadata"]["labels"]

    assert selects(child(of, "StatefulSet", "flights")["spec"]["selector"]["matchLabels"], labels)
    assert selects(
        child(of, "PodDisruptionBudget", "flights")["spec"]["selector"]["matchLabels"], labels
    )
    assert selects(child(of, "Service", "flights-nodes")["spec"]["selector"], labels)


@properties
@given(GROUPS)
def test_a_pod_is_in_at_most_one_client_service_and_a_new_pod_is_in_none(of: Group) -> None:
    labels = pod_template(of)["metadata"]["labels"]
    master = child(of, "Service", "flights-master")["spec"]["selector"]
    slave = child(of, "Service", "flights-slave")["spec"]["selector"]

    for role in ("", names.ROLE_NONE, of.roles.master, of.roles.slave):
        labeled = {**labels, of.roles.label: role} if role else labels
        assert selects(master, labeled) == (role == of.roles.master)
        assert selects(slave, labeled) == (role == of.roles.slave)


@properties
@given(GROUPS)
def test_the_budget_protects_the_majority_and_never_blocks_every_drain(of: Group) -> None:
    spec = child(of, "PodDisruptionBudget", "flights")["spec"]

    assert spec["maxUnavailable"] >= 1
    assert of.replicas == 1 or of.replicas - spec["maxUnavailable"] > of.replicas // 2
    assert of.roles.label not in spec["selector"]["matchLabels"]
    policy = "AlwaysAllow" if of.replicas == 1 else "IfHealthyBudget"
    assert spec["unhealthyPodEvictionPolicy"] == policy, "of several, one not ready may still vote"


@pytest.mark.parametrize(("voters", "replicas"), [(1, 3), (3, 1)])
def test_a_group_that_becomes_one_of_one_or_was_one_counts_as_one_of_several(
    voters: int, replicas: int
) -> None:
    shape = replace(Shape.of_new(voters), voters=voters)

    spec = pod_disruption_budget.build(group(replicas=replicas), shape)["spec"]

    assert spec["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


@properties
@given(GROUPS)
def test_the_pod_meets_the_restricted_security_standard(of: Group) -> None:
    spec = pod_template(of)["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


@properties
@given(of=GROUPS, ordinal=st.integers(0, 6))
def test_a_member_reads_the_groups_settings_from_its_environment(of: Group, ordinal: int) -> None:
    ordinal %= of.replicas
    (container,) = pod_template(of)["spec"]["containers"]
    index, self_id, state, *own = container["env"]
    environment = {each["name"]: each["value"] for each in own}
    environment[self_id["name"]] = self_id["value"].replace(f"$({index['name']})", str(ordinal))
    source = state["valueFrom"]["configMapKeyRef"]
    environment[state["name"]] = child(of, "ConfigMap", source["name"])["data"][source["key"]]
    expected = of.node_settings(Shape.of_new(of.replicas))

    read = NodeSettings.from_environment(environment)

    assert (read.self_id, read.peers) == (f"n{ordinal}", expected.peers)
    assert read.addable_peers == expected.addable_peers
    assert len(read.known_peers) == 7
    assert read.initial_group_state is GroupState.NEW
    assert read.store_base_dir.startswith(container["volumeMounts"][0]["mountPath"])
    assert read.segment_size_bytes == of.segment_size_bytes


def test_a_members_ordinal_comes_from_its_pods_index_label() -> None:
    (container,) = pod_template(group())["spec"]["containers"]

    field = container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]

    assert field == "metadata.labels['apps.kubernetes.io/pod-index']"


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"image": {"tag": "2"}}, "image registry.example:5000/dledger-node:1.2 to registry"),
        ({"log": {"flushDiskType": "AsyncFlush"}}, "flush SyncFlush to AsyncFlush"),
        ({"election": {"timeout": "3s"}}, "settings"),
        ({"resources": {"requests": {"cpu": "2"}}}, "resources"),
        ({"podLabels": {"team": "a"}}, "template"),
        ({"scheduling": {"nodeSelector": {"disk": "fast"}}}, "template"),
        ({"image": {"pullPolicy": "Never"}}, "template"),
    ],
)
def test_a_revision_names_the_part_that_a_spec_changes(spec: dict[str, Any], part: str) -> None:
    before, after = children.revision(group(), NEW), children.revision(group(**spec), NEW)
    recorded = pod_template(group(**spec))["metadata"]["annotations"][names.REVISION_ANNOTATION]

    assert why_behind(before, children.revision(group(), NEW)) == ""
    assert why_behind(before, after).startswith(part)
    assert before.name != after.name
    assert Revision.from_text(recorded) == after


@pytest.mark.parametrize(
    "spec",
    [{"replicas": 5}, {"roles": {"master": "rw"}}, {"services": {"master": {"type": "NodePort"}}}],
)
def test_what_no_pod_is_made_of_changes_no_revision(spec: dict[str, Any]) -> None:
    assert children.revision(group(**spec), NEW) == children.revision(group(), NEW)


@given(st.text() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_a_revision_that_somebody_else_wrote_is_none(text: str) -> None:
    assert Revision.from_text(text) is None


def test_a_pod_of_an_earlier_release_is_behind() -> None:
    assert why_behind(None, Revision(parts={"image": "a"})).startswith("made by an earlier release")


def test_a_container_that_restarts_reads_only_the_initial_group_state_again() -> None:
    (container,) = pod_template(group())["spec"]["containers"]

    referred = [each["valueFrom"] for each in container["env"] if "valueFrom" in each]

    assert "envFrom" not in container
    assert [each["configMapKeyRef"]["key"] for each in referred if "configMapKeyRef" in each] == [
        "DLEDGER_INITIAL_GROUP_STATE"
    ]


def test_an_upgrade_of_the_operator_does_not_change_the_pod_template() -> None:
    template = pod_template(group())

    assert "app.kubernetes.io/version" not in template["metadata"]["labels"]


def test_the_headless_service_publishes_members_that_are_not_ready() -> None:
    spec = child(group(), "Service", "flights-nodes")["spec"]

    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def test_the_stateful_set_leaves_restarts_to_the_operator() -> None:
    spec = child(group(), "StatefulSet", "flights")["spec"]

    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize(
    ("spread", "expected"),
    [("Soft", ["ScheduleAnyway"]), ("Hard", ["DoNotSchedule"]), ("Off", [])],
)
def test_members_are_spread_over_nodes_as_the_spec_asks(spread: str, expected: list[str]) -> None:
    spec = pod_template(group(scheduling={"topologySpread": spread}))["spec"]

    constraints = spec.get("topologySpreadConstraints", [])

    assert [each["whenUnsatisfiable"] for each in constraints] == expected


@pytest.mark.parametrize(("spread", "expected"), [("Soft", 1), ("Hard", 1), ("Off", 0)])
def test_members_prefer_zones_without_a_member_and_nodes_without_a_zone_still_count(
    spread: str, expected: int
) -> None:
    spec = pod_template(group(scheduling={"topologySpread": spread}))["spec"]

    rules = spec.get("affinity", {}).get("podAntiAffinity", {})
    preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    keys = {each["topologyKey"] for each in spec.get("topologySpreadConstraints", [])}

    assert len(preferred) == expected
    assert keys <= {"kubernetes.io/hostname"}


def test_the_choices_in_a_spec_appear_in_the_children() -> None:
    of = group(
        storage={
            "size": "1.5Gi",
            "storageClassName": "fast",
            "retain": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        },
        services={"master": {"type": "NodePort", "annotations": {"a": "b"}}},
        resources={"requests": {"cpu": "2"}},
        scheduling={
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "priorityClassName": "high",
        },
        podAnnotations={"note": "hello"},
    )
    spec = child(of, "StatefulSet", "flights")["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    pod = spec["template"]

    assert claim["spec"]["resources"]["requests"]["storage"] == "1.5Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain", "whenScaled": "Retain",
    }, "a StatefulSet that is deleted or scaled by hand must not take the log with it"  # fmt: skip
    assert child(of, "Service", "flights-master")["spec"]["type"] == "NodePort"
    assert child(of, "Service", "flights-master")["metadata"]["annotations"]["a"] == "b"
    assert child(of, "Service", "flights-slave")["spec"]["type"] == "ClusterIP"
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert pod["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["metadata"]["annotations"]["note"] == "hello"


def audit_manifest(audited: Group | None = None, **spec: Any) -> Manifest:
    request = AuditRequest.from_body(audit_body(spec))
    return audit_job.build(
        request,
        audited or group(),
        member_ids=("n0", "n1", "n2"),
        image="audit:1",
        image_pull_policy="Never",
    )


@pytest.mark.parametrize(
    ("replicas", "voters", "expected"),
    [(5, 3, 1), (5, 4, 1), (5, 5, 2), (3, 5, 1), (3, 4, 1), (1, 3, 1), (7, 1, 1)],
)
def test_the_budget_fits_the_smaller_size_while_a_group_is_scaled(
    replicas: int, voters: int, expected: int
) -> None:
    shape = replace(NEW, voters=voters)

    manifests = children.build(group(replicas=replicas), shape)

    (budget,) = (each for each in manifests if each["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == expected


def test_the_first_voters_are_recorded_on_the_stateful_set_and_the_volume_claims() -> None:
    shape = replace(NEW, pods=5)
    (made,) = (each for each in children.build(group(), shape) if each["kind"] == "StatefulSet")
    (claim,) = made["spec"]["volumeClaimTemplates"]

    assert made["spec"]["replicas"] == 5
    assert made["metadata"]["annotations"] == {names.FIRST_VOTERS_ANNOTATION: "3"}
    assert claim["metadata"]["annotations"] == {names.FIRST_VOTERS_ANNOTATION: "3"}


def test_neither_the_end_of_the_founding_nor_an_identity_changes_the_revision() -> None:
    founded = replace(NEW, state=GroupState.EXISTING, identity="an-identity")

    assert children.revision(group(), founded) == children.revision(group(), NEW)


def test_no_selector_of_the_group_matches_an_audits_pod() -> None:
    labels = audit_manifest()["spec"]["template"]["metadata"]["labels"]

    for manifest in children.build(group(), NEW):
        selector = manifest.get("spec", {}).get("selector", {})
        assert not selects(selector.get("matchLabels", selector) or {"never": ""}, labels)


def test_an_audit_whose_pod_is_lost_is_tried_again_and_has_a_deadline() -> None:
    spec = audit_manifest(ttlAfterFinished="2h")["spec"]

    assert spec["backoffLimit"] == 3
    assert "podFailurePolicy" not in spec, "it would keep the pod on a lost node in the way"
    assert 0 < spec["activeDeadlineSeconds"] <= 24 * 3600
    assert spec["ttlSecondsAfterFinished"] == 7200
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_an_audit_is_told_what_its_pod_requests_and_how_fast_it_may_read() -> None:
    (container,) = audit_manifest(readRate="1Gi")["spec"]["template"]["spec"]["containers"]

    assert container["args"][-4:-2] == ["--read-rate", str(1 << 30)]
    variables = {each["name"]: each for each in container["env"]}
    assert variables.keys() == {workers.CPU_REQUEST, bearer.VARIABLE}
    requested = variables[workers.CPU_REQUEST]["valueFrom"]["resourceFieldRef"]
    assert requested == {"resource": "requests.cpu", "divisor": "1"}


def test_an_audit_reads_every_member_and_writes_its_summary_to_the_termination_message() -> None:
    (container,) = audit_manifest()["spec"]["template"]["spec"]["containers"]

    assert container["args"] == [
        "--group", "flights",
        "--member", "n0=http://flights-0.flights-nodes.air.svc:40912",
        "--member", "n1=http://flights-1.flights-nodes.air.svc:40912",
        "--member", "n2=http://flights-2.flights-nodes.air.svc:40912",
        "--summary-file", container["terminationMessagePath"],
        "--verdict-exits-0",
        "--read-rate", str(50 << 20),
        "--html", "-",
    ]  # fmt: skip


def test_an_audit_can_write_only_to_its_scratch_folder() -> None:
    spec = audit_manifest()["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    can_write = [
        each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")
    ]
    assert can_write == ["/tmp"]
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"]
