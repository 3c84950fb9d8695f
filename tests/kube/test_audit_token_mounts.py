"""The pods of an audit mount the audit token of their group, and no other."""

import json

from dledger_kube.objects import audit_body, group
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import audit_job
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from pyspark_dledger import bearer


def job(audited: Group) -> Manifest:
    request = AuditRequest.from_body(audit_body({"executors": {"max": 2}}))
    return audit_job.build(
        request, audited, member_ids=("n0",), image="audit:1", image_pull_policy="Never"
    )


def test_an_audit_and_its_executors_mount_the_audit_token_and_no_other() -> None:
    spec = job(group())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}

    for pod in (spec, json.loads(variables["DLEDGER_AUDIT_EXECUTOR_POD"])["spec"]):
        (volume,) = [each for each in pod["volumes"] if "secret" in each]
        assert volume["secret"] == {
            "secretName": "admin-tokens.dledger.io",
            "items": [{"key": "flights_audit", "path": "tokens"}],
            "optional": True,
        }
        (mount,) = [
            each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"]
        ]
        assert mount["readOnly"] is True
        assert variables[bearer.VARIABLE] == f"{mount['mountPath']}/tokens"


def test_an_audit_mounts_the_token_also_if_the_spec_demands_none() -> None:
    """The members demand it until the change has reached all of them, which may take a window."""
    with_token, without = (
        json.dumps(job(group(adminToken={"required": required}))) for required in (True, False)
    )

    assert with_token == without
