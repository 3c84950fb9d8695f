"""Cleanup after a failed deployment: its state is printed, and its cluster is removed."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tools.deployment import OPERATOR_NAMESPACE, OPERATOR_PODS, CommandError
from tools.local_cluster.cluster import Cluster
from tools.local_cluster.errors import LocalClusterError

SHOWN = (
    ("get", "nodes,pods", "--all-namespaces", "--output=wide"),
    ("get", "events", "--sort-by=.lastTimestamp", f"--namespace={OPERATOR_NAMESPACE}"),
    ("describe", "pods", f"--namespace={OPERATOR_NAMESPACE}"),
    ("logs", OPERATOR_PODS, "--tail=120", "--prefix", f"--namespace={OPERATOR_NAMESPACE}"),
)
SHOWN_S_MAX = 30.0


@contextlib.contextmanager
def removed_on_error(cluster: Cluster) -> Iterator[None]:
    """Remove the cluster if the block fails, after printing its state as far as possible.

    The error of the block is raised in any case, even if the cleanup fails.
    """
    try:
        yield
    except BaseException:
        for command in SHOWN if _has_come_up(cluster) else ():
            print(f"\n$ kubectl {' '.join(command)}\n{_shown(cluster, command)}", file=sys.stderr)
        try:
            cluster.down(purge=True)
        except (LocalClusterError, OSError, subprocess.SubprocessError) as error:
            print(f"the cluster {cluster.name} is left: {error}", file=sys.stderr)
        raise


@contextlib.contextmanager
def ends_the_run() -> Iterator[None]:
    """End pytest if the block fails: every test needs the cluster, and would repeat the error."""
    try:
        yield
    except (CommandError, LocalClusterError, OSError, subprocess.SubprocessError) as error:
        pytest.exit(f"no end-to-end test can run: {error}", returncode=1)


def _has_come_up(cluster: Cluster) -> bool:
    """Return whether the cluster has come up; if not, kubectl may not even be built."""
    try:
        return cluster.kubeconfig.exists()
    except LocalClusterError:
        return False


def _shown(cluster: Cluster, command: tuple[str, ...]) -> str:
    try:
        return cluster.kubectl(*command, timeout_seconds=SHOWN_S_MAX)
    except (LocalClusterError, OSError, subprocess.SubprocessError) as error:
        return str(error)
