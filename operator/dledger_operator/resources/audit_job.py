"""The Job of an audit: one pod that reads the log of every member over HTTP."""

from collections.abc import Sequence
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import audit_executors, audit_history, security
from dledger_operator.resources.audit_executors import labels_of
from dledger_operator.resources.metadata import AUDIT_COMPONENT, owner, pull_secrets
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group

RUN_S_MAX: Final = audit_executors.RUN_S_MAX
TRIES_AGAIN_MAX: Final = 3
CPU_REQUEST: Final = "DLEDGER_AUDIT_CPU_REQUEST"
"""The variable that `dledger_audit.workers` reads."""


def build(
    audit: AuditRequest,
    group: Group,
    *,
    member_ids: Sequence[str],
    image: str,
    image_pull_policy: str,
) -> Manifest:
    """Build the Job.

    A pod that ends without a verdict was evicted, killed, or lost with its node, so the Job tries
    again. With a verdict it exits with 0, so that no second run can hide the findings of the first.
    There is no `podFailurePolicy`: with one, Kubernetes replaces the pod on a lost node only once
    somebody has deleted the Node. The pod does not carry the group's label, because the group's
    Services and budget would count it as a member.
    """
    labels = labels_of(audit, group.name, AUDIT_COMPONENT)
    account: Manifest = {"automountServiceAccountToken": False}
    if audit.executors is not None:
        name = names.audit_driver(audit.name, audit.uid)
        account = {"automountServiceAccountToken": True, "serviceAccountName": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": audit.namespace,
            "name": names.audit_job(audit.name),
            "labels": labels,
            "ownerReferences": [owner(names.AUDIT_KIND, audit.name, audit.uid)],
        },
        "spec": {
            "backoffLimit": TRIES_AGAIN_MAX,
            "activeDeadlineSeconds": RUN_S_MAX,
            "ttlSecondsAfterFinished": audit.ttl_after_finished_s,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    **account,
                    "enableServiceLinks": False,
                    "securityContext": security.pod_security_context(
                        fixed_user=group.pod_parts.fixed_user
                    ),
                    **pull_secrets(group),
                    "containers": [_container(audit, group, member_ids, image, image_pull_policy)],
                    "volumes": [
                        {
                            "name": "scratch",
                            "emptyDir": {"sizeLimit": audit_executors.SCRATCH_SIZE_MAX},
                        },
                        *audit_executors.token_volume(group),
                        *audit_history.volumes(audit),
                    ],
                },
            },
        },
    }


def _container(
    audit: AuditRequest,
    group: Group,
    member_ids: Sequence[str],
    image: str,
    image_pull_policy: str,
) -> Manifest:
    return {
        "name": names.AUDIT_CONTAINER,
        "image": image,
        "imagePullPolicy": image_pull_policy,
        "command": ["dledger-audit"],
        "args": arguments(audit, group, member_ids),
        # Without a limit of CPU, the container sees all CPUs of its node.
        "env": [
            {
                "name": CPU_REQUEST,
                "valueFrom": {
                    "resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"},
                },
            },
            *audit_executors.token_variable(),
            *audit_executors.environment(audit, group, image, image_pull_policy),
        ],
        "terminationMessagePath": names.TERMINATION_LOG,
        "terminationMessagePolicy": "File",
        "resources": dict(audit.resources),
        "securityContext": security.container_security_context(),
        "volumeMounts": [
            {"name": "scratch", "mountPath": audit_executors.SCRATCH_FOLDER},
            *audit_executors.token_mount(),
            *audit_history.mounts(audit),
        ],
    }


def arguments(audit: AuditRequest, group: Group, member_ids: Sequence[str]) -> list[str]:
    """Return the command-line arguments of `dledger-audit`."""
    members = [
        f"{each}={names.http_url(group.namespace, group.name, names.ordinal(each))}"
        for each in member_ids
    ]
    options = [argument for member in members for argument in ("--member", member)]
    options += ["--summary-file", names.TERMINATION_LOG, "--verdict-exits-0"]
    options += ["--read-rate", str(audit.read_bytes_per_second), "--html", "-"]
    options += ["--decoder", audit.decoder] if audit.decoder else []
    options += [*audit_history.arguments(audit), *audit_executors.arguments(audit)]
    return ["--group", group.name, *options]
