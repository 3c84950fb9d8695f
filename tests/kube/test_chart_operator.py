"""The real operator with only the permissions of the chart, on a real API server.

No pods run here: these tests show that objects are created, admitted and updated. The end-to-end
tests cover the rest.
"""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_server.client import ApiServer, RefusedError, wait_until
from api_server.objects import DRY_RUN, Object, custom, path, stored
from api_server.release import Release, installed, make_namespace, pod_of
from tools.groups.ports import free_ports

pytest_plugins = ["api_server.fixtures"]

STOP_SECONDS = 30.0
CHILDREN = {
    "api/v1": ["services/{}-nodes", "services/{}-master", "services/{}-slave"],
    "apis/apps/v1": ["statefulsets/{}"],
    "apis/policy/v1": ["poddisruptionbudgets/{}"],
    "apis/networking.k8s.io/v1": ["networkpolicies/{}-members", "networkpolicies/{}-audits"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A running operator and the one namespace that it watches."""

    server: ApiServer
    namespace: str
    process: "subprocess.Popen[bytes]"
    log: Path


@contextlib.contextmanager
def operating(release: Release, namespace: str, folder: Path) -> Iterator[Operator]:
    """Run the operator with the release's settings, but outside a pod, until the block ends."""
    kubeconfig, log = folder / "kubeconfig", folder / "operator.log"
    release.write_kubeconfig(kubeconfig)
    health_port = next(free_ports())
    environment = {
        **release.environment,
        "PATH": os.environ["PATH"],
        # The same source tree as the tests, wherever the installed package points to.
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "KUBECONFIG": str(kubeconfig),
        "DLEDGER_OPERATOR_HEALTH_PORT": str(health_port),
        "DLEDGER_OPERATOR_METRICS_PORT": str(next(free_ports())),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dledger_operator.main"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    operator = Operator(server=release.server, namespace=namespace, process=process, log=log)
    try:
        wait_until("the operator is healthy", lambda: is_healthy(operator, health_port))
        yield operator
    finally:
        process.kill()
        process.wait()


def is_healthy(operator: Operator, port: int) -> bool:
    assert operator.process.poll() is None, operator.log.read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
            return True
    except (OSError, urllib.error.HTTPError):
        return False


@pytest.fixture(scope="module")
def operator(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    namespace = make_namespace(api_server)
    values = ("crds.create=false", f"watchNamespaces={{{namespace}}}")
    with (
        installed(api_server, *(f"--set={value}" for value in values)) as release,
        operating(release, namespace, tmp_path_factory.mktemp("operator")) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def group(operator: Operator) -> Iterator[Object]:
    sent = custom("DLedgerGroup", {"storage": {"size": "3Gi"}}, namespace=operator.namespace)
    with stored(operator.server, sent) as made:
        yield made


def exists(operator: Operator, where: str) -> bool:
    try:
        operator.server.request("GET", where)
    except RefusedError as error:
        if error.code != 404:
            raise
        return False
    return True


def child(operator: Operator, api: str, name: str) -> Object:
    """Wait until the operator has created an object, and return it."""
    where = f"/{api}/namespaces/{operator.namespace}/{name}"
    wait_until(f"{name} exists", lambda: exists(operator, where))
    found: Object = operator.server.request("GET", where)
    return found


def admitted(operator: Operator, pod: Object) -> bool:
    pods = f"/api/v1/namespaces/{operator.namespace}/pods?{DRY_RUN}"
    return bool(operator.server.request("POST", pods, pod))


@pytest.mark.parametrize(
    ("api", "name"), [(api, name) for api, names in CHILDREN.items() for name in names]
)
def test_the_children_of_a_group_are_created(
    operator: Operator, group: Object, api: str, name: str
) -> None:
    made = child(operator, api, name.format(group["metadata"]["name"]))

    assert made["metadata"]["ownerReferences"][0]["uid"] == group["metadata"]["uid"]


def test_a_namespace_of_restricted_pods_admits_members(operator: Operator, group: Object) -> None:
    stateful_set = child(operator, "apis/apps/v1", f"statefulsets/{group['metadata']['name']}")
    account = stateful_set["spec"]["template"]["spec"]["serviceAccountName"]
    child(operator, "api/v1", f"serviceaccounts/{account}")
    pod = pod_of(stateful_set)
    # The StatefulSet controller adds the volume of the claim.
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    pod["spec"].setdefault("volumes", []).append({"name": "data", **claim})

    assert admitted(operator, pod)


def test_a_group_without_a_leader_is_not_ready(operator: Operator, group: Object) -> None:
    def conditions() -> dict[str, str]:
        status = operator.server.request("GET", path(group)).get("status", {})
        return {item["type"]: item["status"] for item in status.get("conditions", [])}

    wait_until("the group has conditions", lambda: bool(conditions()))

    assert conditions()["Ready"] == "False"


def test_a_namespace_of_restricted_pods_admits_the_job_of_an_audit(
    operator: Operator, group: Object
) -> None:
    spec = {"groupRef": {"name": group["metadata"]["name"]}}
    # Audit Jobs run as the namespace's default ServiceAccount, which a controller creates.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    accounts = f"/api/v1/namespaces/{operator.namespace}/serviceaccounts"
    if not exists(operator, f"{accounts}/default"):
        operator.server.request("POST", accounts, account)
    with stored(
        operator.server, custom("DLedgerAudit", spec, namespace=operator.namespace)
    ) as audit:
        job = child(operator, "apis/batch/v1", f"jobs/{audit['metadata']['name']}-audit")

        assert admitted(operator, pod_of(job))


def test_the_operator_stops_on_sigterm_and_was_never_forbidden_a_request(
    api_server: ApiServer, tmp_path: Path
) -> None:
    namespace = make_namespace(api_server)
    values = ("crds.create=false", f"watchNamespaces={{{namespace}}}")
    sent = custom("DLedgerGroup", {"storage": {"size": "3Gi"}}, namespace=namespace)
    with (
        installed(api_server, *(f"--set={value}" for value in values)) as release,
        operating(release, namespace, tmp_path) as running,
        stored(api_server, sent) as made,
    ):
        child(running, "apis/policy/v1", f"poddisruptionbudgets/{made['metadata']['name']}")
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(STOP_SECONDS) == 0
    assert "orbidden" not in running.log.read_text()
