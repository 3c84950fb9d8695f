"""A DLedgerGroup on the cluster, handled with kubectl as a user would."""

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dledger_e2e.waiting import wait_for
from dledger_formats.http.status import Manifest, NodeStatus
from tools.deployment import CommandError, Deployment, client_command, read_entries, read_log

ROLE_LABEL = "dledger.io/role"
READY_S = 120.0


def claim_name(pod: str) -> str:
    """Return the name of a member's volume claim."""
    return f"data-{pod}"


def member_of(pod: str) -> str:
    """Return the id of the member that runs in a pod."""
    return f"n{pod.rsplit('-', 1)[1]}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group in a namespace of its own, with a client pod."""

    deployment: Deployment
    namespace: str
    name: str

    def create(self, **spec: Any) -> None:
        """Apply the group, with small sizes unless `spec` overrides them."""
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

    def change(self, **spec: Any) -> None:
        """Change the group's spec; None removes a field."""
        patch = json.dumps({"spec": spec})
        self.kubectl("patch", "dlg", self.name, "--type=merge", "-p", patch)

    def is_as_asked(self) -> bool:
        """Return whether the status describes the current spec, and reports that it is reached."""
        found = self.get("dlg", self.name)
        status, replicas = found.get("status", {}), found["spec"]["replicas"]
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        progressing = next(
            (each for each in status.get("conditions", []) if each["type"] == "Progressing"), {}
        )
        settled = progressing.get("status") == "False" and "plan" not in status
        whole = status.get("membersReady") == f"{replicas}/{replicas}"
        return current and settled and whole and len(self.pods()) == replicas

    def wait_until_ready(self, within_s: float = READY_S) -> None:
        """Wait for the condition Ready with `kubectl wait`. Raises CommandError."""
        limit = f"--timeout={within_s:g}s"
        self.kubectl("wait", "--for=condition=Ready", f"dlg/{self.name}", limit)

    def start_client(self) -> None:
        """Run a pod that contains the `dledger` command."""
        self.deployment.start_client(self.namespace)

    def client_command(self, verb: str, *arguments: str) -> list[str]:
        """Return kubectl arguments that run `dledger` in the client pod."""
        return client_command(self.namespace, self.name, verb, *arguments)

    def kubectl(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """Run kubectl in this group's namespace."""
        return self.deployment.kubernetes.kubectl(
            self._in_namespace, *arguments, timeout_s=timeout_s
        )

    def get(self, *arguments: str) -> Any:
        """Get objects in this group's namespace."""
        return self.deployment.kubernetes.get(*arguments, self._in_namespace)

    def status(self) -> dict[str, Any]:
        """Return the group's status; empty while it has none."""
        status = self.get("dlg", self.name).get("status", {})
        assert isinstance(status, dict)
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """Return a condition; empty while it does not exist."""
        conditions = self.status().get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def wait_for_condition(
        self, kind: str, status: str, reason: str | None = None, timeout_s: float = 90.0
    ) -> dict[str, Any]:
        """Wait until a condition has this status and, if given, this reason."""

        def met() -> dict[str, Any] | None:
            found = self.condition(kind)
            right = found.get("status") == status and reason in (None, found.get("reason"))
            return found if right else None

        return wait_for(
            met, f"{self.name}: {kind} is {status} ({reason or 'any reason'})", timeout_s
        )

    def wait_for_words(self, kind: str, words: str, timeout_s: float = 90.0) -> dict[str, Any]:
        """Wait until a condition's message contains these words.

        The operator may report a problem before it knows the cause, so the message can change after
        the condition has its final status.
        """

        def met() -> dict[str, Any] | None:
            found = self.condition(kind)
            return found if words in found.get("message", "") else None

        return wait_for(met, f"{self.name}: {kind} says {words!r}", timeout_s)

    def pods(self) -> dict[str, Any]:
        """Return the members' pods by name."""
        listed = self.get("pods", f"--selector=dledger.io/group={self.name}")
        return {pod["metadata"]["name"]: pod for pod in listed["items"]}

    def ready_pods(self) -> set[str]:
        """Return the names of the members' pods that are ready and are not to end."""
        return {name for name, pod in self.pods().items() if _is_ready(pod)}

    def uids(self) -> dict[str, str]:
        """Return the uid of every member's pod, which changes when the pod is recreated."""
        return {name: str(pod["metadata"]["uid"]) for name, pod in self.pods().items()}

    def restarts(self) -> int:
        """Return how often containers of the members' pods were started again."""
        return sum(
            int(status["restartCount"])
            for pod in self.pods().values()
            for status in pod["status"]["containerStatuses"]
        )

    def wait_until_whole(self, timeout_s: float = 90.0) -> None:
        """Wait until every member has a ready pod, and the status says so.

        After the death of an operator, the status is as old as its last write. So the pods count.
        """
        members = int(self.get("dlg", self.name)["spec"]["replicas"])

        wait_for(
            lambda: len(self.ready_pods()) == members,
            f"{members} pods of {self.name} are ready",
            timeout_s,
        )
        self.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", timeout_s)

    def claim_uid_of(self, pod: str) -> str | None:
        """Return the uid of a member's volume claim; None while it has none."""
        claims = self.get("pvc", f"--selector=dledger.io/group={self.name}")["items"]
        uids = {each["metadata"]["name"]: str(each["metadata"]["uid"]) for each in claims}
        return uids.get(claim_name(pod))

    def masters(self) -> list[str]:
        """Return the pods with the master label."""
        return sorted(
            name
            for name, pod in self.pods().items()
            if pod["metadata"].get("labels", {}).get(ROLE_LABEL) == "master"
        )

    def master_endpoints(self) -> list[str]:
        """Return the names of the pods that are ready endpoints of the master Service."""
        return sorted(str(each["name"]) for each in self._master_targets())

    def master_endpoint_uids(self) -> list[str]:
        """Return the uids of the pods that are ready endpoints of the master Service."""
        return sorted(str(each["uid"]) for each in self._master_targets())

    def _master_targets(self) -> list[dict[str, Any]]:
        selector = f"--selector=kubernetes.io/service-name={self.name}-master"
        slices = self.get("endpointslices", selector)
        return [
            endpoint["targetRef"]
            for each in slices["items"]
            for endpoint in each.get("endpoints") or []
            if endpoint["conditions"].get("ready")
        ]

    def node_status(self, pod: str) -> NodeStatus | None:
        """Get a member's status; None while it is unreachable."""
        try:
            raw = self.deployment.kubernetes.page(self.namespace, pod, 40912, "/status")
        except (CommandError, subprocess.TimeoutExpired):
            return None
        return NodeStatus.from_json(raw.encode())

    def manifest(self, pod: str) -> Manifest:
        """Get the list of a member's files. Raises CommandError while it is unreachable."""
        raw = self.deployment.kubernetes.page(self.namespace, pod, 40912, "/manifest")
        return Manifest.from_json(raw.encode())

    def leader_pod(self) -> str:
        """Wait until one member is master, has the label and is the Service's only endpoint."""

        def found() -> str | None:
            masters, endpoints = self.masters(), self.master_endpoints()
            if len(masters) != 1 or endpoints != masters:
                return None
            status = self.node_status(masters[0])
            return masters[0] if status is not None and status.master else None

        return wait_for(found, f"{self.name} has one master, the only endpoint of its Service")

    def delete_pod(self, *pods: str) -> None:
        """Delete pods without a grace period."""
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")

    def node_number_of(self, pod: str) -> int:
        """Return the number of the local cluster's node on which a pod runs."""
        return int(str(self.pods()[pod]["spec"]["nodeName"]).removeprefix("node"))

    def read_back(self, first: int, last: int) -> dict[int, str]:
        """Read bodies by index with `dledger`, from the leader, even if its pod is not ready."""
        members = f"--servers={self.name}-nodes:40911"
        return read_log(self.deployment.kubernetes, self.namespace, self.name, first, last, members)

    def bodies(self, first: int, last: int) -> Iterator[bytes]:
        """Yield the bodies of entries with `dledger`, without the leaders' no-ops."""
        kubernetes = self.deployment.kubernetes
        for entry in read_entries(kubernetes, self.namespace, self.name, first, last):
            if "body" in entry:
                yield entry["body"].encode()
            elif "bodyBase64" in entry:
                yield base64.b64decode(entry["bodyBase64"])

    @property
    def _in_namespace(self) -> str:
        return f"--namespace={self.namespace}"


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]
