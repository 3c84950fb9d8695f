"""What the operator knows of Nodes, and which of them are being emptied."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger_operator.api_objects import PodView, Toleration, version_number

CONDITION_TAINTS: Final = "node.kubernetes.io/"
"""Taints that Kubernetes derives from a node's conditions, such as memory pressure. They come and
go, and say nothing about a drain.
"""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The only taint of that prefix that a person sets; the cordon is a field of the Node as well."""
DRAIN_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a Node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A Node, as far as it matters for where a leader runs."""

    name: str
    cordoned: bool
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    ready: bool
    """Whether its kubelet reports to the API server that it is ready."""

    def why_emptied(self, pod: PodView) -> str:
        """Return why the node is being emptied of this pod; empty if it is not.

        A pod was put on the node when it tolerated every taint. So a taint that it does not
        tolerate came later: somebody is draining the node.
        """
        if self.cordoned:
            return "it is cordoned"
        for taint in self.taints:
            if _is_drain(taint) and not any(_tolerates(one, taint) for one in pod.tolerations):
                return f"it has the taint {taint.key}:{taint.effect}"
        return ""


class Nodes:
    """The Nodes of the cluster, as reported by the watch and by LISTs (`node_reads`)."""

    def __init__(self) -> None:
        """Create an empty set, which stays empty if Nodes may not be read."""
        self.readable = False
        """Whether the operator watches Nodes."""
        self._known: dict[str, NodeView] = {}
        self._versions: dict[str, str] = {}

    def get(self, name: str) -> NodeView | None:
        """Return a Node; None if it is not known, or not known yet."""
        return self._known.get(name)

    def why_emptied(self, pod: PodView) -> str:
        """Return why the node of a pod is being emptied; empty if it is not, or is not known."""
        node = self._known.get(pod.node)
        return node.why_emptied(pod) if node else ""

    def is_ready(self, name: str) -> bool | None:
        """Return whether a Node is Ready; None if it is not known."""
        node = self._known.get(name)
        return node.ready if node else None

    def changed(self, body: Mapping[str, Any]) -> bool:
        """Store a Node that the watch reports. Return whether anything that matters differs.

        A watch may lag behind a LIST, so an event that is older than what is known is ignored.
        """
        known = self._versions.get(body["metadata"]["name"], "")
        if version_number(body["metadata"].get("resourceVersion", "")) < version_number(known):
            return False
        return self._take(body)

    def deleted(self, body: Mapping[str, Any]) -> bool:
        """Forget a Node that was deleted. Return whether it was known."""
        return self._forget(body["metadata"]["name"])

    def known_versions(self) -> dict[str, str]:
        """Return the version of each Node that is known, to be passed to `listed` after a LIST."""
        return dict(self._versions)

    def listed(self, before: Mapping[str, str], bodies: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store Nodes of a LIST that began when `before` was known. Return the names of those of
        which anything that matters differs. A Node that the watch has reported meanwhile may be
        newer, and stays as it is.
        """
        found = {body["metadata"]["name"]: body for body in bodies}
        return [
            name
            for name, body in found.items()
            if self._versions.get(name) == before.get(name) and self._take(body)
        ]

    def missing(self, before: Mapping[str, str], found: Collection[str]) -> list[str]:
        """Forget the Nodes that are not in that LIST. Return their names."""
        return [
            name
            for name, version in before.items()
            if name not in found and self._versions.get(name) == version and self._forget(name)
        ]

    def _take(self, body: Mapping[str, Any]) -> bool:
        view = node_view(body)
        before = self._known.get(view.name)
        self._known[view.name] = view
        self._versions[view.name] = body["metadata"].get("resourceVersion", "")
        return view != before

    def _forget(self, name: str) -> bool:
        self._versions.pop(name, None)
        return self._known.pop(name, None) is not None


def node_view(body: Mapping[str, Any]) -> NodeView:
    """Translate a Node as the API server sends it."""
    spec = body.get("spec") or {}
    return NodeView(
        name=body["metadata"]["name"],
        cordoned=bool(spec.get("unschedulable")),
        labels=dict(body["metadata"].get("labels") or {}),
        taints=tuple(
            Taint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in spec.get("taints") or []
        ),
        ready=any(
            each.get("type") == "Ready" and each.get("status") == "True"
            for each in (body.get("status") or {}).get("conditions") or []
        ),
    )


def _is_drain(taint: Taint) -> bool:
    of_condition = taint.key.startswith(CONDITION_TAINTS) and taint.key != OUT_OF_SERVICE
    return taint.effect in DRAIN_EFFECTS and not of_condition


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Apply Kubernetes' rule, but ignore tolerations that end: such a pod is evicted later."""
    if toleration.ends or toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value
