"""What an audit with executors needs besides its Job, and the pod of an executor.

The audit's pod is Spark's driver. It creates the executors' pods itself, so it has a ServiceAccount
with the permissions on pods that the chart names. Permissions cannot be limited by label: with this
account, the driver could create and delete any pod of its namespace. Its executors have no token.
"""

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import security
from dledger_operator.resources.metadata import (
    AUDIT_COMPONENT,
    PART_OF,
    operator_version,
    owner,
    pull_secrets,
)
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group

RUN_S_MAX: Final = 24 * 3600
"""How long an audit may take, with all its tries, and an executor may live."""
SCRATCH_FOLDER: Final = "/tmp"  # noqa: S108 - an emptyDir of the pod's own
SCRATCH_SIZE_MAX: Final = "4Gi"
SCRATCH_OF_SPARK: Final = "spark-local-dir-1"
"""Spark uses a volume of this name for its own files, instead of one without a bound."""
MASTER: Final = "k8s://https://kubernetes.default.svc"
API_PORTS: Final = (443, 6443)
"""The usual ports of API servers."""
SPARK_PORTS: Final = (7078, 7079)
"""The driver's port and the block managers'; those of `dledger_audit.executors.settings`."""
_VARIABLES: Final = {
    "DLEDGER_AUDIT_POD_NAME": "metadata.name",
    "DLEDGER_AUDIT_POD_NAMESPACE": "metadata.namespace",
    "DLEDGER_AUDIT_POD_IP": "status.podIP",
}
_EXECUTOR_POD: Final = "DLEDGER_AUDIT_EXECUTOR_POD"
_FILE_VARIABLE: Final = "DLEDGER_CLIENT_AUDIT_TOKEN_FILE"
"""The variable that `pyspark_dledger.bearer` reads. The driver sets it for its executors."""
RBAC: Final = "rbac.authorization.k8s.io"


def labels_of(audit: AuditRequest, group_name: str, component: str) -> dict[str, str]:
    """Return the labels of everything that belongs to one audit."""
    return {
        "app.kubernetes.io/name": "dledger-audit",
        "app.kubernetes.io/instance": audit.name,
        names.COMPONENT_LABEL: component,
        "app.kubernetes.io/part-of": PART_OF,
        "app.kubernetes.io/version": operator_version(),
        names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
        names.AUDIT_LABEL: audit.name,
        names.AUDITED_GROUP_LABEL: group_name,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the cluster and the operator's settings say about the pods of executors."""

    role: str
    """KIND/NAME of the role that lets a driver create pods; empty if audits have no executors."""
    api_ports: Sequence[int] = API_PORTS
    """The ports of API servers. A policy sees the port behind the Service `kubernetes`."""
    pull_secrets: Sequence[str] = ()
    """The secrets of the namespace's default account, which audits without executors use."""


def build(
    audit: AuditRequest, group: Group, around: Surroundings, *, guarded: bool
) -> list[Manifest]:
    """Build what must exist before the Job: the driver's account and its permissions, and the
    policies if the group has some. None of it is needed without executors.
    """
    if audit.executors is None:
        return []
    name = names.audit_driver(audit.name, audit.uid)
    account = _part(audit, group.name, "v1", "ServiceAccount", name)
    secrets = [{"name": each} for each in around.pull_secrets]
    return [
        account
        | {"automountServiceAccountToken": False}
        | ({"imagePullSecrets": secrets} if secrets else {}),
        binding(audit, around.role, is_bound=True),
        *(_policies(audit, group.name, name, around.api_ports) if guarded else []),
    ]


def binding(audit: AuditRequest, role: str, *, is_bound: bool) -> Manifest:
    """Build the RoleBinding of the driver's account. It has no subject once the audit has ended."""
    kind, _, role_name = role.partition("/")
    name = names.audit_driver(audit.name, audit.uid)
    account = {"kind": "ServiceAccount", "name": name, "namespace": audit.namespace}
    return _part(audit, audit.group_name, f"{RBAC}/v1", "RoleBinding", name) | {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role_name},
        **({"subjects": [account]} if is_bound else {}),
    }


def arguments(audit: AuditRequest) -> list[str]:
    """Return the arguments of `dledger-audit` for executors; none without them."""
    if audit.executors is None:
        return []
    return [
        "--master", MASTER, "--executors", str(audit.executors.most),
        "--executors-within", str(audit.executors.start_within_s),
    ]  # fmt: skip


def environment(
    audit: AuditRequest, group: Group, image: str, image_pull_policy: str
) -> list[Manifest]:
    """Return the variables of the driver; none without executors."""
    if audit.executors is None:
        return []
    fields: list[Manifest] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _VARIABLES.items()
    ]
    pod = executor_pod(audit, group, audit.executors.resources, image, image_pull_policy)
    return [*fields, {"name": _EXECUTOR_POD, "value": json.dumps(pod, sort_keys=True)}]


def token_volume(group: Group) -> list[Manifest]:
    """Build the volume of the audit token.

    A pod also starts without the token: members may demand it although the spec no longer does, or
    does not yet. If they do and it is missing, they refuse the audit, and the report says so.
    """
    source = {
        "secretName": names.TOKENS_NAME,
        "items": [
            {
                "key": names.audit_token_key(group.name),
                "path": posixpath.basename(names.AUDITS_FILE),
            }
        ],
        "optional": True,
    }
    return [{"name": names.AUDITS_VOLUME, "secret": source}]


def token_mount() -> list[Manifest]:
    """Return the mount of that volume."""
    return [
        {
            "name": names.AUDITS_VOLUME,
            "mountPath": names.AUDITS_FOLDER,
            "readOnly": True,
        }
    ]


def token_variable() -> list[Manifest]:
    """Return the variable that names the file with the token."""
    return [{"name": _FILE_VARIABLE, "value": names.AUDITS_FILE}]


def executor_pod(
    audit: AuditRequest,
    group: Group,
    resources: Mapping[str, Any],
    image: str,
    image_pull_policy: str,
) -> Manifest:
    """Build the pod of an executor, except for what Spark adds: its name, environment and owner,
    which is the driver's pod.

    Spark requests as much memory as it sets as a limit, so this pod does, too.
    """
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if memory := limits.get("memory") or requests.get("memory"):
        requests["memory"] = limits["memory"] = memory
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels_of(audit, group.name, names.EXECUTOR_COMPONENT)},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": RUN_S_MAX,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": security.pod_security_context(fixed_user=group.pod_parts.fixed_user),
            **pull_secrets(group),
            "containers": [
                {
                    "name": names.AUDIT_CONTAINER,
                    "image": image,
                    "imagePullPolicy": image_pull_policy,
                    "command": ["dledger-audit"],
                    "resources": {"requests": requests, "limits": limits},
                    "securityContext": security.container_security_context(),
                    "volumeMounts": [
                        {"name": SCRATCH_OF_SPARK, "mountPath": SCRATCH_FOLDER},
                        *token_mount(),
                    ],
                }
            ],
            "volumes": [
                {"name": SCRATCH_OF_SPARK, "emptyDir": {"sizeLimit": SCRATCH_SIZE_MAX}},
                *token_volume(group),
            ],
        },
    }


def _policies(
    audit: AuditRequest, group_name: str, name: str, api_ports: Sequence[int]
) -> list[Manifest]:
    """Build the policies: the audit's pods may reach each other, and the driver the API server. The
    policy for all audits of the group lets them reach the members.
    """
    selected = {names.AUDIT_LABEL: audit.name, names.AUDITED_GROUP_LABEL: group_name}
    peers = [{"podSelector": {"matchLabels": selected}}]
    ports = [{"protocol": "TCP", "port": port} for port in SPARK_PORTS]
    api = [{"protocol": "TCP", "port": port} for port in api_ports]
    driver = selected | {names.COMPONENT_LABEL: AUDIT_COMPONENT}
    kind = ("networking.k8s.io/v1", "NetworkPolicy")
    return [
        _part(audit, group_name, *kind, name)
        | {
            "spec": {
                "podSelector": {"matchLabels": selected},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"ports": ports, "from": peers}],
                "egress": [{"ports": ports, "to": peers}],
            }
        },
        _part(audit, group_name, *kind, f"{name}-driver")
        | {
            "spec": {
                "podSelector": {"matchLabels": driver},
                "policyTypes": ["Egress"],
                "egress": [{"ports": api}],
            }
        },
    ]


def _part(audit: AuditRequest, group_name: str, api_version: str, kind: str, name: str) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": audit.namespace,
            "name": name,
            "labels": labels_of(audit, group_name, AUDIT_COMPONENT),
            "ownerReferences": [owner(names.AUDIT_KIND, audit.name, audit.uid)],
        },
    }
