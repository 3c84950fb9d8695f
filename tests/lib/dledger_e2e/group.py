"""One DLedgerGroup on the cluster, as a user handles it."""

import subprocess
from dataclasses import dataclass
from typing import Any

from dledger_e2e.waiting import wait_for
from dledger_formats.http.status import NodeStatus
from tools.deployment import CommandError, Deployment, client_command, read_log

ROLE_LABEL = "dledger.io/role"
READY_S = 120.0


def claim_name(pod: str) -> str:
    """Name of a member's volume claim."""
    return f"data-{pod}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group in a namespace of its own, with a client's pod beside it."""

    deployment: Deployment
    namespace: str
    name: str

    def create(self, **spec: Any) -> None:
        """Apply the group; sizes are small unless the caller says otherwise."""
        small = {
            "storage": {"size": "1Gi"},
            "log": {"segmentSize": "16Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        }
        manifest = {
            "apiVersion": "dledger.io/v1alpha1",
            "kind": "DLedgerGroup",
            "metadata": {"name": self.name},
            "spec": {**small, **spec},
        }
        self.deployment.kubernetes.apply(manifest, self._in_namespace)

    def wait_until_ready(self) -> None:
        """Wait for the condition Ready, as `kubectl wait` does."""
        self.kubectl("wait", "--for=condition=Ready", f"dlg/{self.name}", f"--timeout={READY_S:g}s")

    def start_client(self) -> None:
        """Run a pod with the command line in it."""
        self.deployment.start_client(self.namespace)

    def client_command(self, verb: str, *arguments: str) -> list[str]:
        """kubectl's arguments that run the command line in the client's pod."""
        return client_command(self.namespace, self.name, verb, *arguments)

    def kubectl(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Run kubectl in this group's namespace."""
        return self.deployment.kubernetes.kubectl(
            self._in_namespace, *arguments, timeout_s=timeout_s
        )

    def get(self, *arguments: str) -> Any:
        """Get objects of this group's namespace."""
        return self.deployment.kubernetes.get(*arguments, self._in_namespace)

    def status(self) -> dict[str, Any]:
        """The object's status; empty while it has none."""
        status = self.get("dlg", self.name).get("status", {})
        assert isinstance(status, dict)
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """One of the conditions; empty while it is not there."""
        conditions = self.status().get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_for_condition(
        self, kind: str, status: str, reason: str | None = None, timeout_s: float = 90.0
    ) -> dict[str, Any]:
        """Wait until a condition has this status, and this reason if one is given."""

        def met() -> dict[str, Any] | None:
            found = self.condition(kind)
            right = found.get("status") == status and reason in (None, found.get("reason"))
            return found if right else None

        return wait_for(
            met, f"{self.name}: {kind} is {status} ({reason or 'any reason'})", timeout_s
        )

    def wait_for_words(self, kind: str, words: str, timeout_s: float = 90.0) -> dict[str, Any]:
        """Wait until a condition's message has these words.

        A status tells what was known when it was written, so a cause that takes a second look to
        find comes with a later message than the trouble itself.
        """

        def met() -> dict[str, Any] | None:
            found = self.condition(kind)
            return found if words in found.get("message", "") else None

        return wait_for(met, f"{self.name}: {kind} says {words!r}", timeout_s)

    def pods(self) -> dict[str, Any]:
        """The members' pods by name."""
        listed = self.get("pods", f"--selector=dledger.io/group={self.name}")
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    def claim_uid_of(self, pod: str) -> str | None:
        """Which volume claim a member has now; None while it has none."""
        claims = self.get("pvc", f"--selector=dledger.io/group={self.name}")["items"]
        uids = {each["metadata"]["name"]: str(each["metadata"]["uid"]) for each in claims}
        return uids.get(claim_name(pod))

    def masters(self) -> list[str]:
        """Pods that carry the master's label."""
        return sorted(
            name
            for name, pod in self.pods().items()
            if pod["metadata"].get("labels", {}).get(ROLE_LABEL) == "master"
        )

    def master_endpoints(self) -> list[str]:
        """Pods that the master Service sends to."""
        selector = f"--selector=kubernetes.io/service-name={self.name}-master"
        slices = self.get("endpointslices", selector)
        return sorted(
            endpoint["targetRef"]["name"]
            for each in slices["items"]
            for endpoint in each.get("endpoints") or []
            if endpoint["conditions"].get("ready")
        )

    def node_status(self, pod: str) -> NodeStatus | None:
        """What a member says of itself, through the API server; None while it cannot be asked.

        The API server may ask on a connection to the pod as it was before its node was lost.
        """
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:40912/proxy/status"
        try:
            raw = self.deployment.kubernetes.kubectl("get", "--raw", path, timeout_s=10)
        except (CommandError, subprocess.TimeoutExpired):
            return None
        return NodeStatus.from_json(raw.encode())

    def leader_pod(self) -> str:
        """Wait until a member is master, the label says so, and the Service sends there alone."""

        def found() -> str | None:
            masters, endpoints = self.masters(), self.master_endpoints()
            if len(masters) != 1 or endpoints != masters:
                return None
            status = self.node_status(masters[0])
            return masters[0] if status is not None and status.master else None

        return wait_for(found, f"{self.name}: one master, and its Service sends to it")

    def delete_pod(self, *pods: str) -> None:
        """Delete pods at once, without a grace period."""
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")

    def node_number_of(self, pod: str) -> int:
        """Number of the local cluster's node on which a pod runs."""
        return int(str(self.pods()[pod]["spec"]["nodeName"]).removeprefix("node"))

    def read_back(self, first: int, last: int) -> dict[int, str]:
        """Bodies by index, read with the command line from whoever leads, ready or not."""
        members = f"--servers={self.name}-nodes:40911"
        return read_log(self.deployment.kubernetes, self.namespace, self.name, first, last, members)

    @property
    def _in_namespace(self) -> str:
        return f"--namespace={self.namespace}"
