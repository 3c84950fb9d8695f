"""Releases of the Helm chart, each installed in its own namespace and then removed."""

import contextlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from api_server.client import ApiServer
from api_server.objects import Object

CHART: Final = Path(__file__).resolve().parents[3] / "helm" / "dledger-operator"
TOKEN_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An installed release, in a namespace that only admits restricted pods."""

    server: ApiServer
    name: str
    namespace: str

    def helm(self, action: str, *arguments: str) -> str:
        """Run a helm action, such as `get notes`, on this release."""
        place = f"--namespace={self.namespace}"
        return self.server.helm(*action.split(), self.name, *arguments, place)

    @property
    def deployment(self) -> Object:
        """The operator's Deployment."""
        base = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        found: Object = self.server.request("GET", f"{base}/{self.name}-dledger-operator")
        return found

    @property
    def pod(self) -> Object:
        """The pod that the Deployment's controller would create."""
        return pod_of(self.deployment)

    @property
    def environment(self) -> dict[str, str]:
        """The operator's environment variables that are not taken from the pod."""
        (container,) = self.pod["spec"]["containers"]
        return {each["name"]: each["value"] for each in container["env"] if "value" in each}

    @property
    def account(self) -> str:
        """The operator's ServiceAccount."""
        name: str = self.pod["spec"]["serviceAccountName"]
        return name

    @property
    def user(self) -> str:
        """The operator's user name at the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def write_kubeconfig(self, target: Path) -> None:
        """Write a kubeconfig with exactly the operator's permissions."""
        answer = self.server.request(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token",
            {"spec": {"expirationSeconds": TOKEN_SECONDS}},
        )
        content: Any = json.loads(self.server.kubeconfig.read_text())
        content["users"][0]["user"]["token"] = answer["status"]["token"]
        target.write_text(json.dumps(content))
        target.chmod(0o600)


def pod_of(workload: Object) -> Object:
    """Return the pod that a controller creates for a Deployment, a StatefulSet or a Job."""
    template = workload["spec"]["template"]
    metadata = {
        **template["metadata"],
        "name": f"{workload['metadata']['name']}-0",
        "namespace": workload["metadata"]["namespace"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def make_namespace(server: ApiServer) -> str:
    """Create a namespace that only admits restricted pods; return its name."""
    name = f"n{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    server.request("POST", "/api/v1/namespaces", body)
    return name


@contextlib.contextmanager
def installed(server: ApiServer, *arguments: str, chart: Path = CHART) -> Iterator[Release]:
    """Install the chart until the block ends."""
    namespace = make_namespace(server)
    release = Release(server=server, name=namespace.replace("n", "r", 1), namespace=namespace)
    with contextlib.ExitStack() as stack:
        stack.callback(release.helm, "uninstall", "--ignore-not-found")
        release.helm("install", str(chart), *arguments)
        yield release
