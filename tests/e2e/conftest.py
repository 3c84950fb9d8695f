"""Fixtures: one cluster with the operator for all tests, and a namespace for each group."""

import contextlib
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from dledger_e2e.deploying import ends_the_run, removed_on_error
from dledger_e2e.group import Group
from dledger_e2e.rocketmq import CLIENT_VERSIONS, start_pod
from tools import deployment
from tools.deployment import CommandError, Deployment
from tools.java_dledger import JavaMissingError
from tools.java_rocketmq import find_client
from tools.local_cluster import host
from tools.local_cluster.cluster import Cluster

BROKER_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "broker.yaml"
CLUSTER_NAME = "e2e"
Make = Callable[..., Group]
READY_SOON_S = 60.0
"""Time after which the state of a new group is printed; a calm machine needs a tenth of it."""
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="session")
def deployed(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """The cluster with the operator; KEEP_CLUSTER=1 leaves it running for inspection."""
    is_local = os.environ.get("CLUSTER") != "current"
    reason = host.why_not() if is_local else None
    if reason:
        advice = "set CLUSTER=current to use the cluster that kubectl points to"
        message = f"END-TO-END TESTS ARE SKIPPED: no local cluster here: {reason}; {advice}"
        print(f"\n{message}", file=sys.stderr)
        pytest.skip(message)
    is_removed = is_local and not os.environ.get("KEEP_CLUSTER")
    cluster = Cluster(CLUSTER_NAME)
    removed = removed_on_error(cluster) if is_removed else contextlib.nullcontext()
    with _uncaptured(request.config), ends_the_run(), removed:
        made = deployment.deploy(CLUSTER_NAME)
    yield made
    if is_removed:
        cluster.down(purge=True)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """A function that returns how often to repeat a planned change, unless `--rounds` says so."""
    given = int(request.config.getoption("--rounds"))
    return lambda usual: given or usual


@pytest.fixture
def make_group(deployed: Deployment, request: pytest.FixtureRequest) -> Iterator[Make]:
    """A function that creates a group in a new namespace with restricted pod security."""
    with _groups_for(request.node, deployed) as make:
        yield make


@pytest.fixture
def group(make_group: Make, request: pytest.FixtureRequest) -> Group:
    """A group of three ready members, with a client pod."""
    return _when_ready(make_group(), request.config)


@pytest.fixture
def broker(make_group: Callable[..., Group], request: pytest.FixtureRequest) -> Group:
    """The group of the example, whose members serve, with a pod that has the Java client of the
    version that the test asks for, or else of the usual one.
    """
    version = getattr(request, "param", CLIENT_VERSIONS[0])
    try:
        find_client(version)
    except JavaMissingError as error:
        pytest.skip(str(error))
    example = yaml.safe_load(BROKER_EXAMPLE.read_text())
    group = make_group(example["metadata"]["name"], **example["spec"])
    start_pod(group, version)
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    group.wait_for_condition("Progressing", "False", "AsRequested")
    return group


@pytest.fixture(scope="module")
def calm_group(deployed: Deployment, request: pytest.FixtureRequest) -> Iterator[Group]:
    """A group shared by the tests of a module that do not change it."""
    with _groups_for(request.node, deployed) as make:
        yield _when_ready(make(), request.config)


def _when_ready(made: Group, config: pytest.Config) -> Group:
    made.start_client()
    try:
        made.wait_until_ready(READY_SOON_S)
    except CommandError:
        # A group that is late is worth a look even if the test passes.
        with _uncaptured(config):
            print(f"\n{made.namespace}: not Ready after {READY_SOON_S:g} s", file=sys.stderr)
            _print_state(made.deployment, made.namespace)
        made.wait_until_ready()
    made.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    return made


def _uncaptured(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """Print at once: pytest does not show what a fixture prints after its setup has failed."""
    capture = config.pluginmanager.getplugin("capturemanager")
    shown: contextlib.AbstractContextManager[None] = capture.global_and_fixture_disabled()  # type: ignore[union-attr]  # always loaded
    return shown


@contextlib.contextmanager
def _groups_for(node: pytest.Item | pytest.Module, deployed: Deployment) -> Iterator[Make]:
    namespaces: list[str] = []

    def make(name: str = "log", **spec: object) -> Group:
        words = re.sub("[^a-z0-9]+", "-", node.name.removeprefix("test_").lower())
        namespace = f"{words[:40].strip('-')}-{uuid.uuid4().hex[:8]}"
        deployed.kubernetes.kubectl("create", "namespace", namespace)
        namespaces.append(namespace)
        deployed.kubernetes.kubectl("label", "namespace", namespace, RESTRICTED)
        group = Group(deployment=deployed, namespace=namespace, name=name)
        group.create(**spec)
        return group

    yield make
    for namespace in namespaces:
        if getattr(node, "failed", False):
            _print_state(deployed, namespace)
        deployed.kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Mark a failed test and its module, so that `_groups_for` prints their groups."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # the wrapped hooks return it
    if report.failed:
        for node in (item, item.getparent(pytest.Module)):
            node.failed = True  # type: ignore[union-attr]  # read by _groups_for
    return report  # type: ignore[return-value]


def _print_state(deployed: Deployment, namespace: str) -> None:
    """Print the objects, Events and logs that help to find the cause of a failure."""
    inside = f"--namespace={namespace}"
    system = f"--namespace={deployment.OPERATOR_NAMESPACE}"
    for command in (
        ("get", "dlg,dla,pods,pvc,jobs", "--show-labels", "--output=wide", inside),
        ("get", "dlg", "--output=yaml", inside),
        ("get", "events", "--sort-by=.lastTimestamp", inside),
        ("logs", "--selector=dledger.io/group", "--tail=40", "--prefix", inside),
        ("logs", deployment.OPERATOR_PODS, "--tail=120", "--prefix", system),
    ):
        try:
            shown = deployed.kubernetes.kubectl(*command)
        except CommandError as error:
            shown = str(error)
        print(f"\n$ kubectl {' '.join(command)}\n{shown}", file=sys.stderr)
