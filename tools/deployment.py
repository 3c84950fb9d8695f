"""Deploy this checkout's operator to a cluster, for the demo and the end-to-end tests.

The cluster is a local one, which is started if necessary. With CLUSTER=current it is the cluster of
the current kubectl context, which must be able to pull the images (IMAGES is their common prefix,
TAG their tag).
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tools.local_cluster import images
from tools.local_cluster.cluster import Cluster

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "helm" / "dledger-operator"
OPERATOR_NAMESPACE: Final = "dledger-system"
RELEASE: Final = "dledger-operator"
OPERATOR_PODS: Final = f"--selector=app.kubernetes.io/instance={RELEASE}"
"""kubectl's option for the pods of all replicas."""
CLIENT_POD: Final = "client"
COMMAND_TIMEOUT_S: Final = 300.0
# The names that `tools.local_cluster.images` gives to images.
LOCAL_IMAGES: Final = "localhost/dledger"
LOCAL_TAG: Final = "dev"
PROGRAMS: Final = ("operator", "node", "audit")


class CommandError(Exception):
    """A command failed; the message contains its output."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """kubectl and helm for one cluster."""

    kubectl_program: str
    helm_program: str
    environment: dict[str, str] = field(repr=False)

    def kubectl(
        self, *arguments: str, input_text: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """Run kubectl and return its output."""
        return self._run([self.kubectl_program, *arguments], input_text, timeout_s)

    def helm(self, *arguments: str) -> str:
        """Run helm and return its output."""
        return self._run([self.helm_program, *arguments], None, COMMAND_TIMEOUT_S)

    def get(self, *arguments: str) -> Any:
        """Return one object or a list as Python values."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def apply(self, manifest: Any, *arguments: str) -> str:
        """Apply a manifest given as Python values."""
        return self.kubectl("apply", "--filename=-", *arguments, input_text=json.dumps(manifest))

    def page(self, namespace: str, pod: str, port: int, path: str, timeout_s: float = 10.0) -> str:
        """Return a page of a pod, requested inside the pod: the NetworkPolicies of members and of
        the operator block the API server's proxy.
        """
        url = f"http://127.0.0.1:{port}{path}"
        program = (
            f"import urllib.request as r; print(r.urlopen({url!r}, timeout=5).read().decode())"
        )
        inside = ("exec", f"--namespace={namespace}", pod, "--")
        return self.kubectl(*inside, "python3", "-c", program, timeout_s=timeout_s)

    def start(
        self,
        *arguments: str,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start kubectl in the background; the caller must end it."""
        command = [self.kubectl_program, *arguments]
        return subprocess.Popen(
            command, env=self.environment, stdin=stdin, stdout=stdout, stderr=stderr
        )

    def _run(self, command: list[str], input_text: str | None, timeout_s: float) -> str:
        done = subprocess.run(
            command,
            env=self.environment,
            input=input_text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A cluster that runs this checkout's operator."""

    kubernetes: Kubernetes
    local: Cluster | None
    """The local cluster; None with CLUSTER=current."""
    image_prefix: str
    image_tag: str
    build: str
    """Annotation value; a new one restarts the operator, whose image may have changed."""

    def image(self, program: str) -> str:
        """Return the full name of a program's image."""
        return f"{self.image_prefix}-{program}:{self.image_tag}"

    def install_operator(self) -> None:
        """Install or upgrade the chart, and wait until the operator runs this checkout's image."""
        values: list[str] = []
        for program, key in zip(PROGRAMS, ("image", "nodeImage", "auditImage"), strict=True):
            values.append(f"--set={key}.repository={self.image_prefix}-{program}")
            values.append(f"--set={key}.tag={self.image_tag}")
        values.append("--set=auditExecutors.enabled=true")
        values.append(f"--set-string=podAnnotations.build={self.build}")
        self.kubernetes.helm(
            "upgrade", "--install", RELEASE, str(CHART), f"--namespace={OPERATOR_NAMESPACE}",
            "--create-namespace", "--wait", "--timeout=180s", *values,
        )  # fmt: skip

    def start_client(self, namespace: str) -> None:
        """Run a pod that contains the CLI `dledger`, with the members' security restrictions."""
        inside = f"--namespace={namespace}"
        self.kubernetes.apply(client_pod(self.image("node")), inside)
        self.kubernetes.kubectl(
            "wait", "--for=condition=Ready", f"pod/{CLIENT_POD}", inside, "--timeout=60s"
        )

    def operator_pod(self) -> str:
        """Return the name of the operator's pod that holds the release's Lease."""
        lease = self.kubernetes.get("lease", RELEASE, f"--namespace={OPERATOR_NAMESPACE}")
        return str(lease["spec"]["holderIdentity"])

    def operator_pods(self) -> list[str]:
        """Return the names of the operator's pods."""
        pods = self.kubernetes.get("pods", f"--namespace={OPERATOR_NAMESPACE}", OPERATOR_PODS)
        return [str(pod["metadata"]["name"]) for pod in pods["items"]]


def client_pod(image: str) -> dict[str, Any]:
    """Return a pod that waits for commands."""
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": CLIENT_POD},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [container],
        },
    }


def client_command(namespace: str, group: str, verb: str, *arguments: str) -> list[str]:
    """Return kubectl's arguments for `dledger VERB` in the client pod, at the master Service."""
    return [
        "exec", "--stdin", f"--namespace={namespace}", CLIENT_POD, "--", "dledger", verb,
        f"--servers={group}-master:40911", f"--group={group}", *arguments,
    ]  # fmt: skip


def read_log(
    kubernetes: Kubernetes, namespace: str, group: str, first: int, last: int, *options: str
) -> dict[int, str]:
    """Return the bodies of entries `first` to `last` by index, without the leaders' no-ops, and
    without those that are not text.
    """
    entries = read_entries(kubernetes, namespace, group, first, last, *options)
    return {entry["index"]: entry["body"] for entry in entries if "body" in entry}


def read_entries(
    kubernetes: Kubernetes, namespace: str, group: str, first: int, last: int, *options: str
) -> Iterator[dict[str, Any]]:
    """Yield entries `first` to `last` as `dledger get` prints them.

    `kubectl exec` can lose the end of a command's output and still succeed (Kubernetes issue
    124571). Therefore the command is repeated from the entry after the last complete line, as long
    as it returns more lines.
    """
    next_index = first
    while next_index <= last:
        span = (f"--first={next_index}", f"--last={last}", *options)
        command = client_command(namespace, group, "get", *span, "--output=json")
        printed = kubernetes.kubectl(*command)
        lines = printed[: printed.rfind("\n") + 1].splitlines()
        if not lines:
            raise CommandError(f"dledger get returned no entry {next_index} of group {group}")
        for entry in map(json.loads, lines):
            next_index = entry["index"] + 1
            yield entry


def deploy(cluster_name: str) -> Deployment:
    """Start the cluster, build and load the images, and install the operator."""
    if os.environ.get("CLUSTER") == "current":
        deployment = _current()
    else:
        deployment = _local(Cluster(cluster_name))
    deployment.install_operator()
    return deployment


def _local(cluster: Cluster) -> Deployment:
    # Build first: new nodes then start with the images.
    built = images.build()
    cluster.up()
    for name in built:
        cluster.load(name)
    return Deployment(
        kubernetes=Kubernetes(
            kubectl_program=str(cluster.kubectl_program),
            helm_program=str(cluster.helm_program),
            environment={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        ),
        local=cluster,
        image_prefix=LOCAL_IMAGES,
        image_tag=LOCAL_TAG,
        build=str(time.time_ns()),
    )


def _current() -> Deployment:
    for program in ("kubectl", "helm"):
        if shutil.which(program) is None:
            raise CommandError(f"CLUSTER=current needs {program} on PATH")
    return Deployment(
        kubernetes=Kubernetes(
            kubectl_program="kubectl", helm_program="helm", environment=dict(os.environ)
        ),
        local=None,
        image_prefix=os.environ.get("IMAGES", LOCAL_IMAGES),
        image_tag=os.environ.get("TAG", LOCAL_TAG),
        build="",
    )
