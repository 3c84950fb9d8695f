"""`history` of audits: what is taken, and how the audit's pod gets the place."""

from typing import Any

import pytest

from api_server.client import ApiServer, RefusedError
from api_server.objects import audit as sent_audit
from api_server.objects import check
from api_server.objects import group as sent_group
from dledger_audit import arguments as command_line
from dledger_audit.places import is_uri
from dledger_kube.objects import audit_body, group
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import audit_job
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.spec_reader import InvalidSpecError

pytest_plugins = ["api_server.fixtures"]

CLAIM = {"claimName": "audits"}
TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a claim": ({"persistentVolumeClaim": CLAIM}, "/history/flights"),
    "a folder of a claim": (
        {"persistentVolumeClaim": CLAIM | {"path": "/audits/of flights/"}},
        "/history/audits/of flights",
    ),
    "a URI": (
        {"uri": "hdfs://namenode:8020/audits/flights"},
        "hdfs://namenode:8020/audits/flights",
    ),
    "an object store": ({"uri": "s3a://bucket/a%20b"}, "s3a://bucket/a%20b"),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no place": ({}, "must have either persistentVolumeClaim or uri"),
    "only what to read": ({"sinceLast": True}, "must have either persistentVolumeClaim or uri"),
    "two places": (
        {"persistentVolumeClaim": CLAIM, "uri": "hdfs://h/a"},
        "must have either persistentVolumeClaim or uri",
    ),
    "a member's volume": (
        {"persistentVolumeClaim": {"claimName": "data-flights-0", "path": "dledger-n0/data"}},
        "must not be the claim of a member",
    ),
    "a folder above the volume": (
        {"persistentVolumeClaim": CLAIM | {"path": "a/../../b"}}, "must be a folder of the volume",
    ),
    "a variable in a folder": (
        {"persistentVolumeClaim": CLAIM | {"path": "$(HOME)"}}, "must be a folder of the volume",
    ),
    "a folder of the pod": ({"uri": "file:///audits"}, "must be a folder of a Hadoop file system"),
    "no URI": ({"uri": "/audits"}, "must be a folder of a Hadoop file system"),
    "a URI with a space": ({"uri": "hdfs://h/a b"}, "must be a folder of a Hadoop file system"),
}  # fmt: skip


def job(**spec: Any) -> Manifest:
    request = AuditRequest.from_body(audit_body(spec))
    return audit_job.build(
        request, group(), member_ids=("n0",), image="audit:1", image_pull_policy="Never"
    )


@pytest.mark.parametrize("since_last", [True, False])
@pytest.mark.parametrize("name", TAKEN)
def test_the_pod_of_an_audit_keeps_its_history_at_the_place_that_is_named(
    api_server: ApiServer, name: str, since_last: bool
) -> None:
    given, place = TAKEN[name]
    asked = given | {"sinceLast": since_last}
    check(api_server, sent_audit(history=asked))
    check(api_server, sent_group(audit={"schedule": "@daily", "history": asked}))

    pod = job(history=asked)["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    _, options, _ = command_line.parse(container["args"])
    assert str(options.history) == place
    assert options.since_last is since_last
    claims = [each for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert len(claims) == (0 if is_uri(options.history) else 1)
    for volume in claims:
        assert volume["persistentVolumeClaim"] == CLAIM, "it can be written to"
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
        assert mount == {"name": volume["name"], "mountPath": "/history"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_history_that_cannot_be_kept_is_refused_before_any_audit_begins(
    api_server: ApiServer, name: str
) -> None:
    given, reason = REFUSED[name]
    for wrong in (
        sent_audit(history=given),
        sent_group(audit={"schedule": "@daily", "history": given}),
    ):
        with pytest.raises(RefusedError, match=reason):
            check(api_server, wrong)
    with pytest.raises(InvalidSpecError, match=reason):
        job(history=given)


def test_audits_of_a_group_have_its_history_and_others_keep_nothing() -> None:
    asked = {"persistentVolumeClaim": CLAIM, "sinceLast": True}
    policy = group(audit={"schedule": "@daily", "history": asked}).audit

    assert policy is not None
    assert policy.request == {"history": asked}
    pod = job()["spec"]["template"]["spec"]
    assert "--history" not in pod["containers"][0]["args"]
    assert not any("persistentVolumeClaim" in each for each in pod["volumes"])


def test_executors_do_not_mount_the_history() -> None:
    asked = {"history": {"persistentVolumeClaim": CLAIM}, "executors": {"max": 2}}
    (container,) = job(**asked)["spec"]["template"]["spec"]["containers"]

    executor = next(each for each in container["env"] if each["name"].endswith("EXECUTOR_POD"))
    assert "persistentVolumeClaim" not in executor["value"]
