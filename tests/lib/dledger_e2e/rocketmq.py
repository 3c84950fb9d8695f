"""RocketMQ's own Java client and name server in pods: an image with a Java runtime, and jars."""

import io
import itertools
import json
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for
from tools.deployment import client_pod
from tools.groups.java_process import QUICK_START
from tools.java_rocketmq import find_client, find_name_server

POD: Final = "rocketmq"
FOLDER: Final = "/client"
CLIENT_VERSIONS: Final = ("5.3.3", "4.9.8")
"""The versions of the client; the first one is the usual one."""
NAMES_POD: Final = "names"
"""The name server's pod, and the Service that leads to it."""
NAMES_VERSION: Final = "5.3.3"
NAMES_PORT: Final = 9876

Event = dict[str, Any]


def start_pod(group: Group, version: str) -> None:
    """Run a pod with a client. Raises JavaMissingError if the client is not built here."""
    _start_pod(group, POD, find_client(version))


def start_name_server(group: Group) -> str:
    """Run a name server, or run it again; return its address. Raises JavaMissingError."""
    _start_pod(group, NAMES_POD, find_name_server(NAMES_VERSION))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAMES_POD},
        "spec": {"selector": {"app": NAMES_POD}, "ports": [{"port": NAMES_PORT}]},
    }
    group.deployment.kubernetes.apply(service, f"--namespace={group.namespace}")
    java = (
        f"java {' '.join(QUICK_START)} -Duser.home={FOLDER} -Drocketmq.home.dir={FOLDER} "
        f"-cp '{FOLDER}/jars/*' org.apache.rocketmq.namesrv.NamesrvStartup"
    )
    in_background = f"nohup {java} > {FOLDER}/log 2>&1 < /dev/null &"
    group.kubectl("exec", NAMES_POD, "--", "sh", "-c", in_background)
    return f"{NAMES_POD}:{NAMES_PORT}"


def _start_pod(group: Group, name: str, class_path: str) -> None:
    """Run a pod that waits for commands, with the jars of a class path."""
    pod = client_pod(group.deployment.image("audit"))
    pod["metadata"] = {"name": name, "labels": {"app": name}}
    [container] = pod["spec"]["containers"]
    container["volumeMounts"] = [{"name": "client", "mountPath": FOLDER}]
    pod["spec"]["volumes"] = [{"name": "client", "emptyDir": {}}]
    jars = _archive(class_path)
    inside = f"--namespace={group.namespace}"
    group.deployment.kubernetes.apply(pod, inside)
    group.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    with group.deployment.kubernetes.start(
        "exec", "--stdin", inside, name, "--", "tar", "--extract", f"--directory={FOLDER}",
        stdin=subprocess.PIPE,
    ) as copying:  # fmt: skip
        copying.communicate(jars, timeout=120)
    assert copying.returncode == 0, "the jars were not copied"


def _archive(class_path: str) -> bytes:
    """Return a tar with the folders `classes` and `jars` of a class path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for part in class_path.split(":"):
            folder = part.removesuffix("/*")
            if Path(folder).exists():  # a name server has no classes of ours
                archive.add(folder, arcname=folder.rpartition("/")[2])
    return packed.getvalue()


class JavaClient:
    """One scenario of RocketMQ's client, as a process in the pod; it ends with the pod."""

    def __init__(self, group: Group, kind: str, name_server: str, /, **options: object) -> None:
        """`kind` and `options` are those of `RocketmqScenario.java`."""
        self._command = [
            "exec", "--stdin", f"--namespace={group.namespace}", POD, "--", "java", *QUICK_START,
            f"-Duser.home={FOLDER}", "-cp", f"{FOLDER}/classes:{FOLDER}/jars/*",
            "RocketmqScenario", kind, name_server,
            *(f"{name}={value}" for name, value in options.items()),
        ]  # fmt: skip
        self._kubernetes = group.deployment.kubernetes
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.events: list[tuple[float, Event]] = []
        """The client's events, with the time at which each arrived."""

    def __enter__(self) -> Self:
        self._process = self._kubernetes.start(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._reader.start()
        self.wait_until(lambda: bool(self.of_kind("started")), "the Java client has started", 90)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._reader.join(timeout=10)

    def of_kind(self, kind: str) -> list[Event]:
        """Return the events of one kind so far."""
        return [event for _, event in [*self.events] if event["event"] == kind]

    def count(self, kind: str) -> int:
        """Return how many events of one kind have come so far."""
        return len(self.of_kind(kind))

    def wait_for_more(self, kind: str, count: int, timeout_s: float = 60.0) -> None:
        """Wait until `count` more events of one kind have come."""
        goal = self.count(kind) + count
        self.wait_until(lambda: self.count(kind) >= goal, f"{count} more {kind}", timeout_s)

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for a condition; on a timeout, raise an error with the client's failures."""
        try:
            wait_for(is_so, what, timeout_s)
        except AssertionError as error:
            last = [event for _, event in self.events if event["event"] != "received"][-3:]
            raise AssertionError(f"{error}; the client last said {last}") from error

    def longest_pause_s(self, kind: str, since: int) -> float:
        """Return the longest time between two events of a kind, starting at number `since`."""
        times = [at_s for at_s, event in [*self.events] if event["event"] == kind]
        return max(later - sooner for sooner, later in itertools.pairwise(times[since:]))

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append((time.monotonic(), json.loads(line)))
