"""Manual changes to the children of the group flights, and what happens after each."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dledger_kube.cluster import Namespace, Object

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "hand-edits.md"
PUT_BACK: Final = "The operator puts it back."
ROLE_REMOVED: Final = "The operator removes the role, and `Degraded` names the pod."

_CORE, _APPS = "/api/v1", "/apis/apps/v1"
_NETWORKING, _POLICY = "/apis/networking.k8s.io/v1", "/apis/policy/v1"
_VOLATILE: Final = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
)  # fmt: skip
_GIVEN_BY_THE_SERVER: Final = ("clusterIP", "clusterIPs")
_INTRODUCTION: Final = """\
# What the operator does about edits by hand

<!-- Written by `python -m pytest tests/kube/test_hand_edits.py --write-pages`. -->

Each row is a command that somebody might run against the children of a group `flights`, led by
`flights-1`. The operator sees the change in a watch and puts the child back within a second;
while `spec.paused` is true, it changes no child but the labels of pods. What somebody adds to a
Service, such as a port, is left alone; what somebody adds to the pod template or to a NetworkPolicy
is removed. A Secret is not watched, since the operator may read no other than its own: a deleted
`admin-tokens.dledger.io` comes back within five minutes.

What a client keeps changing is put back at once 20 times, and once a minute from then on, until the
child has been left alone for ten minutes. The Event `ChildContested` names the client.

The pod `web` is not the group's. The operator removes nothing from such a pod but the role by which
a Service selects it, and only while it carries the group's label. It does so at once 20 times, and
from then on once a minute, and only for pods that have lost it before: if labels come from the
template of a controller that selects by them, each removal would make it create another pod. Once
no such pod has had a role for ten minutes, it begins anew.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandEdit:
    """A kubectl command, the object that it changes, and what happens then."""

    command: str
    then: str = PUT_BACK
    group: str
    kind: str
    name: str

    def content(self, namespace: Namespace) -> Object | None:
        """Return what the operator applied to the object; None if it does not exist."""
        found = namespace.get(self.kind, group=self.group)["items"]
        of_name = (each for each in found if each["metadata"]["name"] == self.name)
        return next(map(self._applied, of_name), None)

    def run(self, namespace: Namespace) -> None:
        """Run the command."""
        words = shlex.split(self.command.removeprefix("kubectl "))
        namespace.server.kubectl(f"--namespace={namespace.name}", *words)

    def _applied(self, found: Object) -> Object:
        parts: dict[str, Any] = {
            key: {k: v for k, v in part.items() if k not in _GIVEN_BY_THE_SERVER}
            for key, part in found.items()
            if key in ("spec", "data")
        }
        metadata = found["metadata"].items()
        return parts | {"metadata": {k: v for k, v in metadata if k not in _VOLATILE}}


def _of(group: str, kind: str, name: str, *commands: str) -> Iterator[HandEdit]:
    return (
        HandEdit(command=f"kubectl {command}", group=group, kind=kind, name=name)
        for command in commands
    )


def _patch(kind: str, name: str, change: str) -> str:
    return f"patch {kind} {name} --type=merge --patch='{change}'"


PUT_BACK_EDITS: Final = [
    *_of(
        _CORE, "services", "flights-master",
        _patch("service", "flights-master", '{"spec": {"selector": {"dledger.io/role": "slave"}}}'),
        "label service flights-master dledger.io/group-",
        "delete service flights-master",
    ),
    *_of(
        _CORE, "services", "flights-slave",
        _patch("service", "flights-slave", '{"spec": {"selector": null}}'),
        "delete service flights-slave",
    ),
    *_of(
        _CORE, "services", "flights-nodes",
        _patch("service", "flights-nodes", '{"spec": {"publishNotReadyAddresses": false}}'),
        "delete service flights-nodes",
    ),
    *_of(
        _CORE, "configmaps", "flights-settings",
        _patch("configmap", "flights-settings", '{"data": {"DLEDGER_INITIAL_GROUP_STATE": "new"}}'),
        _patch("configmap", "flights-settings", '{"data": {"live.env": null}}'),
        "label configmap flights-settings app.kubernetes.io/managed-by=me --overwrite",
        "delete configmap flights-settings",
    ),
    *_of(
        _CORE, "serviceaccounts", "flights-node",
        "label serviceaccount flights-node dledger.io/group=trains --overwrite",
        "delete serviceaccount flights-node",
    ),
    *_of(
        _POLICY, "poddisruptionbudgets", "flights",
        _patch("poddisruptionbudget", "flights", '{"spec": {"maxUnavailable": 3}}'),
        "delete poddisruptionbudget flights",
    ),
    *_of(
        _NETWORKING, "networkpolicies", "flights-members",
        _patch("networkpolicy", "flights-members", '{"spec": {"ingress": [{}]}}'),
        "delete networkpolicy flights-members",
    ),
    *_of(
        _NETWORKING, "networkpolicies", "flights-audits",
        _patch("networkpolicy", "flights-audits", '{"spec": {"ingress": [{}]}}'),
    ),
    *_of(
        _APPS, "statefulsets", "flights",
        "set image statefulset/flights node=nginx:1",
        "set env statefulset/flights DLEDGER_GROUP=trains",
        "rollout restart statefulset/flights",
        "label statefulset flights app.kubernetes.io/managed-by=me --overwrite",
        "annotate statefulset flights dledger.io/applied-spec-",
        "scale statefulset flights --replicas=5",
        "scale statefulset flights --replicas=1",
    ),
    *_of(
        _CORE, "pods", "flights-0",
        "label pod flights-0 dledger.io/role=master --overwrite",
        "label pod flights-0 dledger.io/role-",
        "annotate pod flights-0 dledger.io/term=9999 --overwrite",
    ),
    *_of(
        _CORE, "pods", "flights-1",
        "label pod flights-1 dledger.io/role=slave --overwrite",
    ),
]  # fmt: skip


FOREIGN_EDITS: Final = [
    replace(each, then=ROLE_REMOVED)
    for each in _of(
        _CORE, "pods", "web",
        "label pod web dledger.io/group=flights dledger.io/role=master",
        "label pod web dledger.io/group=flights dledger.io/role=slave",
    )
]  # fmt: skip


def render() -> str:
    """Return the page as Markdown."""
    edits = (*PUT_BACK_EDITS, *FOREIGN_EDITS)
    rows = [f"| `{each.command}` | {each.then} |" for each in edits]
    return "\n".join([_INTRODUCTION, "| Command | What happens |", "| --- | --- |", *rows, ""])
