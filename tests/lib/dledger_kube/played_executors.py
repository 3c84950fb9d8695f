"""Plays kubelets for the pods of an audit with executors: each pod's process, on loopback."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger_kube.cluster import MERGE_PATCH, Namespace, Object
from dledger_operator import names

POLL_S: Final = 0.3
COMMAND: Final = [sys.executable, "-m", "dledger_audit"]
"""The command that replaces the image's program `dledger-audit`."""


def environment_of(pod: Object, ip: str, folder: Path) -> dict[str, str]:
    """Return the environment of a pod's only container, as a kubelet sets it."""
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "status.podIP": ip,
    }
    (container,) = pod["spec"]["containers"]
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    for each in container.get("env", []):
        source = each.get("valueFrom", {})
        if path := source.get("fieldRef", {}).get("fieldPath"):
            given[each["name"]] = fields[path]
        elif not source:
            given[each["name"]] = each["value"]
    return given | {"SPARK_LOCAL_DIRS": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


class PlayedExecutors:
    """Starts the process of each new pod of an executor, and ends it with its pod."""

    def __init__(self, namespace: Namespace, subnet: str, folder: Path) -> None:
        self.seen: dict[str, Object] = {}
        """The pods that were created, by name."""
        self._namespace, self._subnet, self._folder = namespace, subnet, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._done = threading.Event()

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Play until the end of the block."""
        thread = threading.Thread(target=self._play, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
            for process in self._processes.values():
                process.kill()
                process.wait()

    def log(self) -> str:
        """Return the executors' output."""
        return "\n".join(each.read_text() for each in sorted(self._folder.glob("*.log")))

    def left(self) -> list[str]:
        """Return the names of the executors' pods that are left."""
        found = self._namespace.get("pods")["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if each["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.EXECUTOR_COMPONENT
            and "deletionTimestamp" not in each["metadata"]
        ]

    def _play(self) -> None:
        while not self._done.wait(POLL_S):
            for pod in self._namespace.get("pods")["items"]:
                labels = pod["metadata"]["labels"]
                if labels.get(names.COMPONENT_LABEL) != names.EXECUTOR_COMPONENT:
                    continue
                if pod["metadata"]["name"] not in self.seen:
                    self._start(pod)

    def _start(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        ip = f"{self._subnet}.{len(self.seen) + 10}"
        self.seen[name] = pod
        (container,) = pod["spec"]["containers"]
        assert container["command"] == ["dledger-audit"]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*COMMAND, *container["args"]],
                env=environment_of(pod, ip, self._folder), stdout=log, stderr=log,
            )  # fmt: skip
        path = self._namespace.path("pods", f"{name}/status")
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        self._namespace.server.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)
