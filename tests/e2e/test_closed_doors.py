"""NetworkPolicies that the local cluster enforces with kube-router on every node."""

from collections.abc import Iterator

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.one_off import order
from dledger_e2e.waiting import wait_for
from tools.deployment import CLIENT_POD, OPERATOR_NAMESPACE, CommandError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]
REMOTING, HTTP = 40911, 40912
METRICS, PROBES = 8080, 8081
SPARK = 7078
"""The port of a driver for its executors."""
LISTENS_S = 120.0
CONNECT_S = 3
CUT_OFF = "cut off"


@pytest.fixture
def strangers(group: Group) -> Iterator[str]:
    """Another namespace, with a pod that has the `dledger` command."""
    name = f"{group.namespace[:50]}-strangers"
    kubernetes = group.deployment.kubernetes
    kubernetes.kubectl("create", "namespace", name)
    group.deployment.start_client(name)
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")


def connects(group: Group, namespace: str, address: str, port: int, pod: str = CLIENT_POD) -> bool:
    """Return whether a pod of a namespace can connect; raises if it cannot even try."""
    program = (
        "import socket\n"
        f"try: socket.create_connection(({address!r}, {port}), timeout={CONNECT_S})\n"
        f"except (TimeoutError, ConnectionRefusedError): print({CUT_OFF!r})\n"
    )
    inside = ("exec", f"--namespace={namespace}", pod, "--", "python3", "-c", program)
    return CUT_OFF not in group.deployment.kubernetes.kubectl(*inside)


def open_to(group: Group, namespace: str) -> set[tuple[str, int]]:
    """Return the members and ports to which the client pod of a namespace can connect."""
    return {
        (name, port)
        for name, pod in group.pods().items()
        for port in (REMOTING, HTTP)
        if connects(group, namespace, pod["status"]["podIP"], port)
    }


def open_at_operator(group: Group, namespace: str, pod: str = CLIENT_POD) -> set[int]:
    """Return the ports of the acting operator to which a pod of a namespace can connect."""
    inside = f"--namespace={OPERATOR_NAMESPACE}"
    operator = group.deployment.kubernetes.get("pod", group.deployment.operator_pod(), inside)
    address = operator["status"]["podIP"]
    return {port for port in (METRICS, PROBES) if connects(group, namespace, address, port, pod)}


def ports_of_all(group: Group, *ports: int) -> set[tuple[str, int]]:
    return {(name, port) for name in group.pods() for port in ports}


def let(group: Group, **policy: list[str]) -> None:
    group.deployment.kubernetes.apply(
        {
            "apiVersion": "dledger.io/v1alpha1",
            "kind": "DLedgerGroup",
            "metadata": {"name": group.name},
            "spec": {
                **{
                    key: value
                    for key, value in group.get("dlg", group.name)["spec"].items()
                    if key in ("storage", "log", "resources")
                },
                "networkPolicy": policy,
            },
        },
        f"--namespace={group.namespace}",
    )


def test_strangers_are_cut_off_and_everything_else_works(group: Group, strangers: str) -> None:
    wait_for(lambda: not open_to(group, strangers), "strangers reach no port of any member")
    assert open_at_operator(group, strangers) == set()
    neighbour = min(set(group.deployment.operator_pods()) - {group.deployment.operator_pod()})
    assert open_at_operator(group, OPERATOR_NAMESPACE, neighbour) == {METRICS}
    assert open_to(group, group.namespace) == ports_of_all(group, REMOTING, HTTP)
    servers = f"--servers={group.name}-master.{group.namespace}:{REMOTING}"
    append = ("dledger", "append", "--body=x", servers, f"--group={group.name}", "--deadline=3")
    as_stranger = ("exec", f"--namespace={strangers}", CLIENT_POD, "--", *append)
    with pytest.raises(CommandError):
        group.deployment.kubernetes.kubectl(*as_stranger)

    with Load(group, per_second=200) as load:
        load.wait_for_more(200)
        group.delete_pod(group.leader_pod())
        load.wait_for_more(200)
    group.wait_for_condition("Ready", "True")
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    assert_nothing_was_lost(group, load)
    assert audit(group, "behind-closed-doors")["verdict"] == "Sound"

    let(group, clientNamespaces=[strangers])
    wait_for(
        lambda: open_to(group, strangers) == ports_of_all(group, REMOTING),
        "the listed namespace reaches the port of clients alone",
    )
    group.deployment.kubernetes.kubectl(*as_stranger)
    let(group, monitoringNamespaces=[strangers])
    wait_for(
        lambda: open_to(group, strangers) == ports_of_all(group, HTTP),
        "a monitoring namespace reaches the pages alone",
    )


def test_nobody_but_its_executors_reaches_a_running_audit(group: Group, strangers: str) -> None:
    """Its executors fit no node, so the audit listens and waits for as long as it may."""
    huge = {"requests": {"cpu": "1000"}, "limits": {"memory": "1200Mi"}}
    executors = {"max": 1, "startWithin": "180s", "resources": huge}
    order(group, "DLedgerAudit", "waiting", executors=executors)

    driver, address = wait_for(lambda: running_driver(group, "waiting"), "the driver runs")

    def listens() -> bool:
        return connects(group, group.namespace, address, SPARK, driver)

    wait_for(listens, "the driver listens at its own address", LISTENS_S)
    wait_for(
        lambda: (
            not any(connects(group, each, address, SPARK) for each in (strangers, group.namespace))
        ),
        "neither strangers nor neighbours reach it",
    )
    assert listens(), "it still does"


def running_driver(group: Group, audit_name: str) -> tuple[str, str] | None:
    """Return the name and the address of the pod of an audit; None while it does not run."""
    for pod in group.get("pods", f"--selector=job-name={audit_name}-audit")["items"]:
        if pod["status"]["phase"] == "Running":
            return pod["metadata"]["name"], pod["status"]["podIP"]
    return None
