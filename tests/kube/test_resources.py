"""What a group consists of."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_formats.settings import GroupState, NodeSettings
from dledger_kube.objects import audit_body, group
from dledger_operator import names
from dledger_operator.resources import audit_job, children, config_map
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.views import Manifest

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


@properties
@given(GROUPS)
def test_every_child_belongs_to_its_group_and_says_so(of: Group) -> None:
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
def test_selectors_find_the_pods_whatever_labels_a_user_adds(of: Group) -> None:
    labels = pod_template(of)["metadata"]["labels"]

    assert selects(child(of, "StatefulSet", "flights")["spec"]["selector"]["matchLabels"], labels)
    assert selects(
        child(of, "PodDisruptionBudget", "flights")["spec"]["selector"]["matchLabels"], labels
    )
    assert selects(child(of, "Service", "flights-nodes")["spec"]["selector"], labels)


@properties
@given(GROUPS)
def test_no_pod_is_in_two_client_services_and_a_new_one_is_in_none(of: Group) -> None:
    labels = pod_template(of)["metadata"]["labels"]
    master = child(of, "Service", "flights-master")["spec"]["selector"]
    slave = child(of, "Service", "flights-slave")["spec"]["selector"]

    for role in ("", names.ROLE_NONE, of.roles.master, of.roles.slave):
        labelled = {**labels, of.roles.label: role} if role else labels
        assert selects(master, labelled) == (role == of.roles.master)
        assert selects(slave, labelled) == (role == of.roles.slave)


@properties
@given(GROUPS)
def test_the_budget_never_costs_the_majority_and_never_blocks_every_drain(of: Group) -> None:
    spec = child(of, "PodDisruptionBudget", "flights")["spec"]

    assert spec["maxUnavailable"] >= 1
    assert of.replicas == 1 or of.replicas - spec["maxUnavailable"] > of.replicas // 2
    assert of.roles.label not in spec["selector"]["matchLabels"]


@properties
@given(GROUPS)
def test_the_pod_keeps_to_the_restricted_standard(of: Group) -> None:
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
def test_a_member_reads_back_the_settings_that_the_group_means(of: Group, ordinal: int) -> None:
    ordinal %= of.replicas
    (container,) = pod_template(of)["spec"]["containers"]
    (source,) = container["envFrom"]
    environment = dict(child(of, "ConfigMap", source["configMapRef"]["name"])["data"])
    (index, self_id, addable, state) = container["env"]
    environment[self_id["name"]] = self_id["value"].replace(f"$({index['name']})", str(ordinal))
    environment[addable["name"]] = addable["value"]
    reference = state["valueFrom"]["configMapKeyRef"]
    assert reference["name"] == source["configMapRef"]["name"]
    environment[state["name"]] = environment[reference["key"]]
    expected = of.node_settings(Shape.of_new(of.replicas))

    read = NodeSettings.from_environment(environment)

    assert (read.self_id, read.peers) == (f"n{ordinal}", expected.peers)
    assert read.addable_peers == expected.addable_peers
    assert len(read.known_peers) == 7
    assert read.initial_group_state is GroupState.NEW
    assert read.store_base_dir.startswith(container["volumeMounts"][0]["mountPath"])
    assert read.segment_size_bytes == of.segment_size_bytes


def test_the_member_s_number_is_the_pod_s_own() -> None:
    (container,) = pod_template(group())["spec"]["containers"]

    field = container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]

    assert field == "metadata.labels['apps.kubernetes.io/pod-index']"


def test_pods_know_which_settings_they_run_with() -> None:
    before, after = group(), group(election={"timeout": "3s"})

    assert config_map.config_hash(before, NEW) == config_map.config_hash(group(), NEW)
    assert config_map.config_hash(before, NEW) != config_map.config_hash(after, NEW)
    assert pod_template(after)["metadata"]["annotations"][
        names.CONFIG_HASH_ANNOTATION
    ] == config_map.config_hash(after, NEW)


def test_a_new_version_of_the_operator_changes_no_pod() -> None:
    template = pod_template(group())

    assert "app.kubernetes.io/version" not in template["metadata"]["labels"]


def test_members_find_one_another_before_they_are_ready() -> None:
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
def test_members_keep_off_each_other_s_nodes_as_asked(spread: str, expected: list[str]) -> None:
    spec = pod_template(group(scheduling={"topologySpread": spread}))["spec"]

    constraints = spec.get("topologySpreadConstraints", [])

    assert [each["whenUnsatisfiable"] for each in constraints] == expected


def test_what_a_user_chooses_arrives() -> None:
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
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
    assert child(of, "Service", "flights-master")["spec"]["type"] == "NodePort"
    assert child(of, "Service", "flights-master")["metadata"]["annotations"] == {"a": "b"}
    assert child(of, "Service", "flights-slave")["spec"]["type"] == "ClusterIP"
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert pod["spec"]["nodeSelector"] == {"disk": "fast"}
    assert pod["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["metadata"]["annotations"]["note"] == "hello"


def audit_manifest(**spec: Any) -> Manifest:
    request = AuditRequest.from_body(audit_body(spec))
    return audit_job.build(
        request, group(), member_ids=("n0", "n1", "n2"), image="audit:1", image_pull_policy="Never"
    )


@pytest.mark.parametrize(
    ("replicas", "voters", "expected"),
    [(5, 3, 1), (5, 4, 1), (5, 5, 2), (3, 5, 1), (3, 4, 1), (1, 3, 1), (7, 1, 1)],
)
def test_while_a_group_is_scaled_the_budget_is_the_smaller_one(
    replicas: int, voters: int, expected: int
) -> None:
    shape = replace(NEW, voters=voters)

    manifests = children.build(group(replicas=replicas), shape)

    (budget,) = (each for each in manifests if each["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == expected


def test_who_founded_the_group_is_noted_on_what_outlives_its_settings() -> None:
    shape = replace(NEW, pods=5)
    (made,) = (each for each in children.build(group(), shape) if each["kind"] == "StatefulSet")
    (claim,) = made["spec"]["volumeClaimTemplates"]

    assert made["spec"]["replicas"] == 5
    assert made["metadata"]["annotations"] == {names.FIRST_VOTERS_ANNOTATION: "3"}
    assert claim["metadata"]["annotations"] == {names.FIRST_VOTERS_ANNOTATION: "3"}


def test_pods_need_no_replacement_when_the_group_has_begun() -> None:
    begun = replace(NEW, state=GroupState.EXISTING)

    assert config_map.config_hash(group(), begun) == config_map.config_hash(group(), NEW)


def test_older_pods_read_nothing_that_they_do_not_know() -> None:
    data = child(group(), "ConfigMap", "flights-settings")["data"]

    assert "DLEDGER_ADDABLE_PEERS" not in data
    assert "DLEDGER_INITIAL_GROUP_STATE" not in data


def test_an_audit_s_pod_is_no_member_of_the_group() -> None:
    labels = audit_manifest()["spec"]["template"]["metadata"]["labels"]

    for manifest in children.build(group(), NEW):
        selector = manifest.get("spec", {}).get("selector", {})
        assert not selects(selector.get("matchLabels", selector) or {"never": ""}, labels)


def test_an_audit_runs_once_and_within_a_known_time() -> None:
    spec = audit_manifest(ttlAfterFinished="2h")["spec"]

    assert spec["backoffLimit"] == 0
    assert 0 < spec["activeDeadlineSeconds"] <= 24 * 3600
    assert spec["ttlSecondsAfterFinished"] == 7200
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_an_audit_reads_every_member_and_leaves_its_summary_where_kubernetes_looks() -> None:
    (container,) = audit_manifest()["spec"]["template"]["spec"]["containers"]

    assert container["args"] == [
        "--group", "flights",
        "--member", "n0=http://flights-0.flights-nodes.air.svc:40912",
        "--member", "n1=http://flights-1.flights-nodes.air.svc:40912",
        "--member", "n2=http://flights-2.flights-nodes.air.svc:40912",
        "--summary-file", container["terminationMessagePath"],
    ]  # fmt: skip


def test_an_audit_may_write_nothing_but_its_scratch_folder() -> None:
    spec = audit_manifest()["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"]
