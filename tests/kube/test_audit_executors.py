"""Audits with executors: what the operator makes for them, and what it tells of them."""

import dataclasses
import json
from typing import Any

import pytest

from dledger_audit.executors import program, settings
from dledger_formats.audit import AuditFailure
from dledger_kube.objects import IMAGES, NOW, audit_body, group_body
from dledger_operator import names
from dledger_operator.api_objects import JobPodView, JobView, Manifest
from dledger_operator.behaviors.audits.judging import judge
from dledger_operator.problem import Problem
from dledger_operator.resources import audit_executors, audit_job, network_policies, security
from dledger_operator.spec.audit_policy import read_audit_policy
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader
from pyspark_dledger import bearer

ROLE = "ClusterRole/dledger:audit-driver"
GUARDED = dataclasses.replace(IMAGES, operator_namespace="dledger-system")
JOB = JobView(uid="job-uid", owner_uid="audit-uid", ended=False, failure=None, started_at=NOW)


def request(**executors: Any) -> AuditRequest:
    return AuditRequest.from_body(audit_body({"executors": {"max": 4, **executors}}))


def flights() -> Group:
    return Group.from_body(group_body({}), GUARDED)


def parts(audit: AuditRequest, *, guarded: bool = True) -> dict[str, Manifest]:
    around = audit_executors.Surroundings(role=ROLE, pull_secrets=["registry"])
    made = audit_executors.build(audit, flights(), around, guarded=guarded)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in made}


def job_pod(audit: AuditRequest) -> Manifest:
    job = audit_job.build(
        audit, flights(), member_ids=["n0"], image="audit:1", image_pull_policy="Always"
    )
    template: Manifest = job["spec"]["template"]
    return template


def executor_of(audit: AuditRequest) -> Manifest:
    """The pod of an executor, as the driver gets it."""
    (container,) = job_pod(audit)["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}
    pod: Manifest = json.loads(variables[settings.EXECUTOR_POD]["value"])
    return pod


def test_an_audit_without_executors_has_no_account_and_no_token() -> None:
    audit = AuditRequest.from_body(audit_body())
    spec = job_pod(audit)["spec"]

    assert (
        audit_executors.build(
            audit, flights(), audit_executors.Surroundings(role=ROLE), guarded=True
        )
        == []
    )
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert "--master" not in spec["containers"][0]["args"]
    assert [each["name"] for each in spec["containers"][0]["env"]] == [
        audit_job.CPU_REQUEST,
        bearer.VARIABLE,
    ]


def test_the_driver_has_an_account_of_its_own_that_the_audit_owns() -> None:
    audit = request()
    made = parts(audit)
    name = "monthly-audit-audit-ui"

    assert list(made) == [
        f"ServiceAccount/{name}", f"RoleBinding/{name}", f"NetworkPolicy/{name}",
        f"NetworkPolicy/{name}-driver",
    ]  # fmt: skip
    for each in made.values():
        (owned_by,) = each["metadata"]["ownerReferences"]
        assert (owned_by["kind"], owned_by["uid"]) == ("DLedgerAudit", "audit-uid")
    binding = made[f"RoleBinding/{name}"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == tuple(ROLE.split("/"))
    assert made[f"ServiceAccount/{name}"]["imagePullSecrets"] == [{"name": "registry"}]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "air"}]
    spec = job_pod(audit)["spec"]
    assert spec["serviceAccountName"] == name
    assert spec["automountServiceAccountToken"] is True


def test_an_executor_has_the_restrictions_of_the_audit_and_no_token() -> None:
    audit = request(resources={"requests": {"cpu": "100m"}, "limits": {"memory": "1200Mi"}})
    driver, executor = job_pod(audit)["spec"], executor_of(audit)

    (container,) = executor["spec"]["containers"]
    assert container["securityContext"] == security.container_security_context()
    assert executor["spec"]["securityContext"] == driver["securityContext"]
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in executor["spec"]
    assert container["image"] == driver["containers"][0]["image"]
    assert [*container["command"], program.EXECUTOR] == ["dledger-audit", "executor"]
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "1200Mi"},
        "limits": {"memory": "1200Mi"},
    }
    assert executor["spec"]["activeDeadlineSeconds"] == audit_job.RUN_S_MAX


def test_the_job_and_its_executors_are_told_apart_and_no_executor_counts_as_the_jobs() -> None:
    audit = request()
    driver, executor = (
        job_pod(audit)["metadata"]["labels"],
        executor_of(audit)["metadata"]["labels"],
    )

    assert driver[names.COMPONENT_LABEL] != executor[names.COMPONENT_LABEL]
    assert driver[names.AUDIT_LABEL] == executor[names.AUDIT_LABEL] == "monthly"
    assert driver[names.AUDITED_GROUP_LABEL] == executor[names.AUDITED_GROUP_LABEL] == "flights"
    assert names.GROUP_LABEL not in executor


def test_the_policies_let_the_pods_of_one_audit_reach_each_other_and_the_driver_the_api() -> None:
    audit = request()
    among, driver = (
        each["spec"] for each in parts(audit).values() if each["kind"] == "NetworkPolicy"
    )
    labels = executor_of(audit)["metadata"]["labels"]
    ports = [{"protocol": "TCP", "port": each} for each in audit_executors.SPARK_PORTS]
    (peer,) = among["ingress"][0]["from"]

    assert among["ingress"][0]["ports"] == among["egress"][0]["ports"] == ports
    assert among["egress"][0]["to"] == [peer]
    assert peer["podSelector"] == among["podSelector"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert not driver["podSelector"]["matchLabels"].items() <= labels.items()
    assert driver["podSelector"]["matchLabels"].items() <= (
        job_pod(audit)["metadata"]["labels"].items()
    )
    assert [each["port"] for each in driver["egress"][0]["ports"]] == [443, 6443]
    assert "NetworkPolicy" not in {each.split("/")[0] for each in parts(audit, guarded=False)}
    members = network_policies.build_audits(flights())["spec"]["podSelector"]["matchLabels"]
    assert members.items() <= labels.items(), "executors reach the members as audits do"


def test_the_operator_and_the_audit_use_the_same_words_and_ports() -> None:
    audit = request(max=3, startWithin="90s")
    (container,) = job_pod(audit)["spec"]["containers"]
    variables = {each["name"] for each in container["env"]}

    assert variables == {
        audit_job.CPU_REQUEST, settings.POD_NAME, settings.POD_NAMESPACE, settings.POD_IP,
        settings.EXECUTOR_POD, bearer.VARIABLE,
    }  # fmt: skip
    assert audit_executors.SPARK_PORTS == (settings.DRIVER_PORT, settings.BLOCK_MANAGER_PORT)
    assert audit_executors.arguments(audit) == [
        "--master", "k8s://https://kubernetes.default.svc", "--executors", "3",
        "--executors-within", "90",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("executors", "complaint"),
    [
        ({"max": 0}, "spec.executors.max is 0"),
        ({"max": 101}, "spec.executors.max is 101"),
        ({"max": "two"}, "spec.executors.max"),
        ({"max": 1, "startWithin": "soon"}, "spec.executors.startWithin"),
        (
            {"max": 1, "resources": {"requests": {"memory": "1149Mi"}}},
            "spec.executors.resources: an executor needs at least 1150Mi of memory, not 1149Mi",
        ),
        (
            {"max": 1, "resources": {"limits": {"memory": 10**9}}},
            "spec.executors.resources: an executor needs at least 1150Mi of memory, not 1000000000",
        ),
        (
            {"max": 1, "resources": {"limits": {"memory": "much"}}},
            "spec.executors.resources: an executor needs at least 1150Mi of memory, not much",
        ),
    ],
)
def test_wrong_executors_are_refused(executors: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError, match=complaint):
        AuditRequest.from_body(audit_body({"executors": executors}))


@pytest.mark.parametrize("decoder", ["os:system", "a.b:c"])
def test_code_of_a_users_own_does_not_run_where_the_secret_of_spark_is(decoder: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.decoder .* module:function with executors"):
        AuditRequest.from_body(audit_body({"executors": {"max": 2}, "decoder": decoder}))
    AuditRequest.from_body(audit_body({"decoder": decoder}))

    asked = {"schedule": "@daily", "decoder": decoder, "executors": {"max": 2}}
    policy = read_audit_policy(SpecReader(asked, "spec.audit"))

    assert policy is not None
    assert policy.schedule is None
    assert policy.problem.startswith("spec.audit.decoder must not be module:function with exec")


@pytest.mark.parametrize("decoder", ["kv", "register", "rocketmq", "json:carrier", "json:a:b"])
def test_the_decoders_of_this_project_go_with_executors(decoder: str) -> None:
    asked = {"executors": {"max": 2}, "decoder": decoder}

    assert AuditRequest.from_body(audit_body(asked)).decoder == decoder
    policy = read_audit_policy(SpecReader({"schedule": "@daily", **asked}, "spec.audit"))
    assert policy is not None
    assert not policy.problem


def test_the_audits_of_a_group_take_its_executors() -> None:
    policy = read_audit_policy(
        SpecReader({"schedule": "@daily", "executors": {"max": 2}}, "spec.audit")
    )

    assert policy is not None
    assert policy.request == {"executors": {"max": 2}}


def pod(name: str, **fields: Any) -> JobPodView:
    values: dict[str, Any] = {
        "running": False, "exit_code": None, "termination_message": "", "finished_at": None,
        "problem": None,
    }  # fmt: skip
    return JobPodView(name=name, uid=f"{name}-uid", controller_uid="job-uid", **values | fields)


DRIVER = pod("driver", running=True)
NO_ROOM_TOLD = "Unschedulable: 0/1 nodes are available"
NO_ROOM = Problem(reason="Unschedulable", message="0/1 nodes are available")


@pytest.mark.parametrize(
    ("executors", "reason", "message"),
    [
        ([], "WaitingForExecutors", "pod driver has no executor that runs"),
        (
            [pod("exec-1", problem=NO_ROOM)],
            "WaitingForExecutors",
            f"pod driver has no executor that runs; pod exec-1: {NO_ROOM_TOLD}",
        ),
        (
            [pod("exec-1", running=True), pod("exec-2", problem=NO_ROOM)],
            "Running",
            f"1 executor of pod driver read the members' logs; pod exec-2: {NO_ROOM_TOLD}",
        ),
        (
            [
                pod("exec-1", running=True), pod("exec-2", running=True),
                pod("exec-0", exit_code=1, problem=Problem(reason="OOMKilled", message="")),
            ],
            "Running",
            "2 executors of pod driver read the members' logs",
        ),
    ],
    ids=["none yet", "no room", "room for one", "one was replaced"],
)  # fmt: skip
def test_the_status_tells_which_executors_run_and_why_others_do_not(
    executors: list[JobPodView], reason: str, message: str
) -> None:
    outcome = judge(JOB, [DRIVER], name="a-audit", executors=executors)

    assert (outcome.phase, outcome.reason, outcome.message) == ("Running", reason, message)


def ended_with(message: str) -> tuple[str, str]:
    ended = pod("driver", exit_code=0, termination_message=message, finished_at=NOW)
    outcome = judge(dataclasses.replace(JOB, ended=True), [ended], name="a-audit")
    return outcome.phase, outcome.reason


def test_an_audit_without_executors_ends_with_the_reason_that_its_pod_told() -> None:
    failure = AuditFailure(failed="NoExecutors", message="a pod is refused: exceeded quota")

    assert ended_with(failure.to_json().decode()) == ("Failed", "NoExecutors")
    odd = dataclasses.replace(failure, failed="no such reason")
    assert ended_with(odd.to_json().decode()) == ("Failed", "NoSummary")
    assert len(dataclasses.replace(failure, message="x" * 9999).to_json()) < 4096
