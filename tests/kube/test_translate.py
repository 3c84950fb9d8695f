"""Translating API objects into the operator's own types."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, PersistentVolumeClaim, Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from dledger_operator.clients import pod_problems, translate
from dledger_operator.spec.revision import Revision

GROUPS = Path(__file__).resolve().parents[2] / "crds" / "dledgergroups.yaml"


def pod(
    name: str = "flights-1",
    annotations: dict[str, str] | None = None,
    deleted: bool = False,
    **status: Any,
) -> Pod:
    metadata = {
        "namespace": "air",
        "name": name,
        "uid": "u",
        "resourceVersion": "12",
        "labels": {"dledger.io/role": "slave"},
        "annotations": annotations or {},
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    containers = [{"name": "sidecar", "image": "proxy:1"}, {"name": "node", "image": "node:1"}]
    return Pod.from_dict(
        {"metadata": metadata, "spec": {"containers": containers}, "status": status}
    )


def container(name: str = "node", ready: bool = False, **states: Any) -> dict[str, Any]:
    return {
        "name": name, "ready": ready, "image": "i", "imageID": "i", "restartCount": 0, **states,
    }  # fmt: skip


def test_the_member_id_of_a_pod_follows_from_its_ordinal() -> None:
    view = translate.pod_view(pod(podIP="198.18.0.7"))

    assert (view.member_id, view.ip, view.resource_version) == ("n1", "198.18.0.7", "12")


@pytest.mark.parametrize(
    ("name", "state", "copies"),
    [
        ("dledger-seed", {"running": {}}, True),
        ("dledger-seed", {"waiting": {"reason": "CrashLoopBackOff"}}, False),
        ("dledger-seed", {"terminated": {"exitCode": 0}}, False),
        ("somebody-else", {"running": {}}, False),
    ],
    ids=["runs", "fails", "has-ended", "another"],
)
def test_a_pod_copies_the_archive_while_its_init_container_runs(
    name: str, state: dict[str, Any], copies: bool
) -> None:
    view = translate.pod_view(pod(initContainerStatuses=[container(name, state=state)]))

    assert view.copies_archive == copies


def test_a_pod_has_its_members_image_and_its_revision() -> None:
    view = translate.pod_view(pod(annotations={"dledger.io/revision": '{"image": "node:1"}'}))

    assert (view.image, view.revision) == ("node:1", Revision(parts={"image": "node:1"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("", -1),
        ("-3", -1),
        ("seven", -1),
        ("\u0667", -1),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), -1),
        ("9" * 5000, -1),
    ],
)
def test_an_invalid_term_annotation_reads_as_minus_one(text: str, expected: int) -> None:
    assert translate.pod_view(pod(annotations={"dledger.io/term": text})).term == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [({"phase": "Running"}, False), ({"phase": "Failed"}, True), ({"phase": "Succeeded"}, True)],
)
def test_a_terminated_pod_is_leaving(status: dict[str, Any], expected: bool) -> None:
    assert translate.pod_view(pod(**status)).leaving is expected


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    deleted = translate.pod_view(pod(deleted=True, phase="Running"))
    assert deleted.leaving
    assert deleted.ends_by == datetime(2026, 1, 1, tzinfo=UTC)


RUNS: dict[str, Any] = {"running": {}}
ENDED = {"terminated": {"exitCode": 0}}


@pytest.mark.parametrize(
    ("states", "init_states", "expected"),
    [
        ([ENDED, ENDED], [ENDED], True),
        ([ENDED, RUNS], [], False),
        ([ENDED], [RUNS], False),
        ([{"waiting": {}}], [], False),
        ([], [], False),
    ],
)
def test_a_pod_has_ended_once_every_container_has_whatever_its_phase(
    states: list[dict[str, Any]], init_states: list[dict[str, Any]], expected: bool
) -> None:
    seen = translate.pod_view(
        pod(
            phase="Failed",
            containerStatuses=[container(state=state) for state in states],
            initContainerStatuses=[container("init", state=state) for state in init_states],
        )
    )

    assert seen.ended is expected


def test_a_pod_is_ready_if_its_ready_condition_is_true() -> None:
    conditions = [{"type": "Ready", "status": "True"}]

    assert translate.pod_view(pod(conditions=conditions)).ready
    assert not translate.pod_view(pod()).ready


@pytest.mark.parametrize(
    ("status", "reason", "part"),
    [
        (
            {"containerStatuses": [container(state={"waiting": {"reason": "ImagePullBackOff",
                                                                "message": "no such image"}})]},
            "ImagePullBackOff", "no such image",
        ),
        (
            {"containerStatuses": [container(
                state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                lastState={"terminated": {"exitCode": 1, "reason": "Error", "message": "full"}},
            )]},
            "CrashLoopBackOff", "exit code 1 (Error): full",
        ),
        (
            {"containerStatuses": [container(
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            )]},
            "CrashLoopBackOff", "exit code 137 (OOMKilled)",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/3 nodes"}]},
            "Unschedulable", "0/3 nodes",
        ),
        (
            {"containerStatuses": [
                container("proxy", state={"waiting": {"reason": "ErrImagePull"}}),
            ]},
            "ErrImagePull", "container proxy: ",
        ),
        (
            {"initContainerStatuses": [container(
                "dledger-seed", state={"waiting": {"reason": "CrashLoopBackOff"}},
                lastState={"terminated": {"exitCode": 1, "reason": "Error", "message": "small"}},
            )], "containerStatuses": [container(state={"waiting": {"reason": "PodInitializing"}})]},
            "CrashLoopBackOff", "init container dledger-seed: the container last terminated with",
        ),
        (
            {"initContainerStatuses": [container("dledger-seed", state={
                "terminated": {"exitCode": 1, "reason": "Error", "message": "it is no archive"}})]},
            "Error", "exit code 1 (Error): it is no archive",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted", "low on"),
    ],
)  # fmt: skip
def test_a_problem_has_the_reason_and_message_from_kubernetes(
    status: dict[str, Any], reason: str, part: str
) -> None:
    problem = translate.pod_view(pod(**status)).problem

    assert problem is not None
    assert problem.reason == reason
    assert part in problem.message


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("OutOfephemeral-storage", "OutOfephemeral_storage"),
        ("OutOfexample.com/disks", "OutOfexample_com_disks"),
        ("2 nodes: no room.", "nodes_no_room_"),
        ("no_room" * 1000, ("no_room" * 1000)[:128]),
        ("?", "Unknown"),
    ],
)
def test_a_reason_that_no_condition_may_have_becomes_one(given: str, shown: str) -> None:
    """The API server would refuse the whole status of the group."""
    (version,) = yaml.safe_load(GROUPS.read_text())["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    allowed = status["conditions"]["items"]["properties"]["reason"]

    problem = translate.pod_view(pod(phase="Failed", reason=given, message="too full")).problem

    assert problem is not None
    assert (problem.reason, problem.message) == (shown, "too full")
    assert re.fullmatch(allowed["pattern"], problem.reason)


def test_what_a_container_said_last_is_whole_although_the_kubelet_says_much() -> None:
    said = "delete the group, " + "and its claims, " * 24 + "and create it again"
    kubelet = (
        "back-off 5m0s restarting failed container=dledger-seed "
        "pod=flights-0_air(0b0f7c0e-7d0a-4f8e-9a43-0a1d2c3b4e5f)"
    )
    status = container(
        "dledger-seed",
        state={"waiting": {"reason": "CrashLoopBackOff", "message": kubelet}},
        lastState={"terminated": {"exitCode": 1, "reason": "Error", "message": said}},
    )

    problem = translate.pod_view(pod(initContainerStatuses=[status])).problem

    assert problem is not None
    assert said in problem.message


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"containerStatuses": [container(state={"waiting": {"reason": "ContainerCreating"}})]},
        {"containerStatuses": [container(state={"running": {}})]},
        {"conditions": [{"type": "PodScheduled", "status": "True"}]},
        {"initContainerStatuses": [container("dledger-seed", state={"running": {}})]},
        {
            "initContainerStatuses": [
                container(
                    "dledger-seed",
                    ready=True,
                    state={"terminated": {"exitCode": 0, "reason": "Completed"}},
                )
            ]
        },
    ],
)
def test_a_pod_that_is_starting_has_no_problem(status: dict[str, Any]) -> None:
    assert translate.pod_view(pod(**status)).problem is None


def test_an_unbound_volume_claim_names_its_storage_class() -> None:
    claim = PersistentVolumeClaim.from_dict(
        {
            "metadata": {"name": "data-flights-0"},
            "spec": {"storageClassName": "fats"},
            "status": {"phase": "Pending"},
        }
    )

    problem = translate.volume_claim_view(claim).problem

    assert problem is not None
    assert problem.reason == "VolumePending"
    assert "fats" in problem.message


def test_a_volume_claim_has_its_members_ordinal_and_the_first_voters() -> None:
    claim = PersistentVolumeClaim.from_dict(
        {
            "metadata": {
                "name": "data-flights-4",
                "annotations": {"dledger.io/first-voters": "3"},
            }
        }
    )
    bare = PersistentVolumeClaim.from_dict({"metadata": {"name": "data-flights-0"}})

    view, bare_view = translate.volume_claim_view(claim), translate.volume_claim_view(bare)

    assert (view.ordinal, view.first_voters) == (4, 3)
    assert (bare_view.ordinal, bare_view.first_voters) == (0, None)


def test_a_bound_volume_claim_has_no_problem() -> None:
    claim = PersistentVolumeClaim.from_dict(
        {"metadata": {"name": "v"}, "status": {"phase": "Bound"}}
    )

    assert translate.volume_claim_view(claim).problem is None


def test_events_about_refused_pods_are_read_latest_first() -> None:
    def event(message: str, at: str | None) -> Event:
        return Event.from_dict(
            {
                "metadata": {"name": "e"},
                "involvedObject": {},
                "message": message,
                "lastTimestamp": at,
            }
        )

    failures = pod_problems.creation_failures(
        [
            event("create Pod a-0 in StatefulSet a failed error: old", None),
            event("create Pod a-0 in StatefulSet a failed error: new", "2026-01-01T00:00:00Z"),
            event("create Claim data-a-1 for Pod a-1 in StatefulSet a failed error: full", None),
            event("something else failed", "2026-01-01T00:00:00Z"),
        ]
    )

    assert [(each.pod, each.message) for each in failures] == [
        ("a-0", "new"), ("a-0", "old"), ("a-1", "full"),
    ]  # fmt: skip
    assert [each.at for each in failures] == [datetime(2026, 1, 1, tzinfo=UTC), None, None]


def test_an_endpoint_with_unknown_readiness_is_ready() -> None:
    def target(name: str) -> dict[str, Any]:
        return {"kind": "Pod", "name": name}

    endpoint_slice = EndpointSlice.from_dict(
        {
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["a"], "targetRef": target("p0"), "conditions": {"ready": True}},
                {"addresses": ["b"], "targetRef": target("p1"), "conditions": {"ready": False}},
                {"addresses": ["c"], "targetRef": target("p2")},
                {"addresses": ["d"], "conditions": {"ready": True}},
            ],
        }
    )

    views = translate.endpoint_views(endpoint_slice)

    assert [(view.pod, view.ready) for view in views] == [
        ("p0", True), ("p1", False), ("p2", True),
    ]  # fmt: skip


def job(**status: Any) -> Job:
    owner = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "audit-uid"}
    return Job.from_dict({"metadata": {"name": "j", "ownerReferences": [owner]}, "status": status})


def test_a_failed_job_has_a_reason() -> None:
    view = translate.job_view(
        job(
            startTime="2026-01-01T00:00:00Z",
            conditions=[{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}],
        )
    )

    assert (view.owner_uid, view.ended) == ("audit-uid", True)
    assert view.failure is not None
    assert view.failure.reason == "DeadlineExceeded"
    assert view.started_at is not None


def test_a_running_job_has_not_ended() -> None:
    assert not translate.job_view(job(active=1)).ended


def test_the_termination_message_of_an_audit_is_kept() -> None:
    ended = {"terminated": {"exitCode": 4, "reason": "Error", "message": "{}",
                            "finishedAt": "2026-01-01T00:00:00Z"}}  # fmt: skip
    view = translate.job_pod_view(pod("a-x", containerStatuses=[container("audit", state=ended)]))

    assert (view.exit_code, view.termination_message, view.running) == (4, "{}", False)
    assert view.finished_at is not None
