"""A namespace of a real API server, and stand-ins for the controllers and kubelets."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api_server.client import ApiServer
from dledger_kube.objects import IMAGES
from dledger_operator import names
from dledger_operator.resources import children
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

API = "/apis/dledger.io/v1alpha1"
DISCOVERY = "/apis/discovery.k8s.io/v1"
APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace that admits only restricted pods; it exists as long as the server."""

    server: ApiServer
    name: str

    @classmethod
    def make(cls, server: ApiServer) -> "Namespace":
        """Create a namespace with a unique name."""
        name = f"ns-{uuid.uuid4().hex[:12]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        made = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        }
        server.request("POST", "/api/v1/namespaces", made)
        namespace = cls(server=server, name=name)
        namespace.make_service_account("default")
        return namespace

    def path(self, kind: str, name: str = "", group: str = "/api/v1") -> str:
        """Return the URL path of objects in this namespace."""
        return f"{group}/namespaces/{self.name}/{kind}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str = "", group: str = "/api/v1") -> Object:
        """Get an object, or a list without `name`."""
        found: Object = self.server.request("GET", self.path(kind, name, group))
        return found

    def patch(self, kind: str, name: str, change: Object, group: str = "/api/v1") -> Object:
        """Change an object, as another client would."""
        changed: Object = self.server.request(
            "PATCH", self.path(kind, name, group), change, content_type=MERGE_PATCH
        )
        return changed

    def make_service_account(self, name: str) -> None:
        """Create a ServiceAccount, as a controller does for `default`."""
        made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self.server.request("POST", self.path("serviceaccounts"), made)

    def make_group(self, **spec: Any) -> Object:
        """Create a DLedgerGroup named flights."""
        sent = {
            "apiVersion": "dledger.io/v1alpha1",
            "kind": "DLedgerGroup",
            "metadata": {"name": "flights"},
            "spec": {"storage": {"size": "30Gi"}, **spec},
        }
        made: Object = self.server.request("POST", self.path("dledgergroups", group=API), sent)
        return made

    def make_pod(self, group: Group, ordinal: int, ip: str = "") -> Object:
        """Create a member's pod, as the StatefulSet controller does. With `ip`, make it ready, as a
        kubelet does.
        """
        template = self._stateful_set(group)["spec"]["template"]
        name = names.pod(group.name, ordinal)
        sent = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "name": name,
                "ownerReferences": self._owners_of_pods(self._stateful_set(group)),
            },
            "spec": {
                **template["spec"],
                "serviceAccountName": "default",
                "volumes": [
                    {"name": names.DATA_VOLUME, "emptyDir": {}},
                    *template["spec"].get("volumes", []),
                ],
            },
        }
        made: Object = self.server.request("POST", self.path("pods"), sent)
        if ip:
            self.make_pod_ready(name, ip)
        return made

    def _stateful_set(self, group: Group) -> Object:
        """Return the group's StatefulSet, or the one that the operator would create."""
        found = self.get("statefulsets", group="/apis/apps/v1")["items"]
        manifests = children.build(group, Shape.of_new(group.replicas))
        return next(each for each in (*found, *manifests) if _is_stateful_set(each, group.name))

    def _owners_of_pods(self, stateful_set: Object) -> list[Object]:
        """Return the reference to the group's StatefulSet; none while it does not exist."""
        metadata = stateful_set["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
        known = {key: metadata[key] for key in ("name", "uid") if key in metadata}
        return [owner | known] if "uid" in known else []

    def make_pod_ready(self, name: str, ip: str) -> None:
        """Set a pod's address and its condition Ready."""
        status = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
        }
        path = self.path("pods", f"{name}/status")
        self.server.request("PATCH", path, {"status": status}, content_type=STRATEGIC_PATCH)

    def make_pod_unready(self, name: str) -> None:
        """Let a pod's readiness probe fail."""
        status = {"conditions": [{"type": "Ready", "status": "False"}]}
        path = self.path("pods", f"{name}/status")
        self.server.request("PATCH", path, {"status": status}, content_type=STRATEGIC_PATCH)

    def point_service(self, group: str, service: str, pod: str) -> None:
        """Write the EndpointSlice of a Service with one ready pod, as its controller does."""
        name = f"{service}-1"
        endpoint = {
            "addresses": ["192.0.2.1"],
            "conditions": {"ready": True},
            "targetRef": {"kind": "Pod", "name": pod},
        }
        labels = {names.GROUP_LABEL: group, names.SERVICE_NAME_LABEL: service}
        sent = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [endpoint],
        }
        path = self.path("endpointslices", name, DISCOVERY)
        query = "?fieldManager=controller&force=true"
        self.server.request("PATCH", path + query, sent, content_type=APPLY_PATCH)

    def play_budget(self, name: str) -> None:
        """Count a budget's ready pods, as the disruption controller does."""
        policy = "/apis/policy/v1"
        budget = self.get("poddisruptionbudgets", name, policy)
        expected = self.get("statefulsets", name, "/apis/apps/v1")["spec"]["replicas"]
        healthy = sum(map(_is_healthy, self.get("pods")["items"]))
        desired = expected - budget["spec"]["maxUnavailable"]
        status = {
            "observedGeneration": budget["metadata"]["generation"],
            "expectedPods": expected,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired),
            "disruptedPods": None,
        }
        if {**budget["status"], "disruptedPods": None} != budget["status"] | status:
            path = self.path("poddisruptionbudgets", f"{name}/status", policy)
            self.server.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        self.server.request("DELETE", self.path("pods", name) + "?gracePeriodSeconds=0")

    def token(self, service_account: str) -> str:
        """Return a token of a ServiceAccount."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = self.path("serviceaccounts", f"{service_account}/token")
        answer: Object = self.server.request("POST", path, request)
        token: str = answer["status"]["token"]
        return token

    def kubeconfig_of(self, service_account: str, folder: Path) -> Path:
        """Write a kubeconfig that authenticates as a ServiceAccount."""
        content = json.loads(self.server.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": self.token(service_account)}
        written = folder / f"kubeconfig-{service_account}"
        written.write_text(json.dumps(content))
        return written


def _is_healthy(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _is_stateful_set(manifest: Object, name: str) -> bool:
    kind = manifest.get("kind", "StatefulSet")  # an object in a list has none
    return (kind, manifest["metadata"]["name"]) == ("StatefulSet", name)


def parsed(body: Object) -> Group:
    """Parse a stored DLedgerGroup."""
    return Group.from_body(body, IMAGES)
