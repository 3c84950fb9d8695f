"""The layout of a cluster: its folders, names, addresses and ports.

Every value follows from the cluster's name, slot and folder, so clusters with different names and
slots share nothing. This module only computes values and never changes the machine.

The address plan divides 198.18.0.0/15, the range reserved for benchmarks (RFC 2544), into sixteen
slots. Slot S has 198.18.(16 S).0/20 for nodes and pods, and 198.19.(16 S).0/20 for Services:

    198.18.(16 S).1         the machine itself: API server and cluster DNS
    198.18.(16 S).(10+N)    node N
    198.18.(16 S + N).0/24  the pods of node N
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

SLOTS = 16
NODES_MAX = 15
TEST_RANGE = "198.18.0.0/15"
DEFAULT_NAME = "dledger"
API_PORT = 6443

# Added to the environment of programs that talk to a cluster, which no proxy can reach.
_DIRECT = f"{TEST_RANGE},127.0.0.1,localhost"
DIRECT_ENVIRONMENT = {"NO_PROXY": _DIRECT, "no_proxy": _DIRECT}

# A Unix socket's path has at most 107 bytes. The longest path ends in _DEEPEST_SOCKET.
SOCKET_PATH_MAX = 100
_DEEPEST_SOCKET = "node15/run-containerd/containerd.sock.ttrpc"

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?")


def cache_folder() -> Path:
    """Return the folder of the cache: programs, base images and packages."""
    own = os.environ.get("DLEDGER_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "dledger-operator"


def clusters_folder() -> Path:
    """Return the folder that holds a folder for each cluster, running or stopped."""
    return Path(os.environ.get("DLEDGER_CLUSTERS") or "/var/lib/dledger-clusters").absolute()


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"the cluster name is {name!r}; it must be 1 to 20 of a-z, 0-9 and '-'")


def bridge_name(slot: int) -> str:
    return f"dlc{slot}"


@dataclass(frozen=True, kw_only=True)
class NodeLayout:
    """The names, addresses and paths of one node. Only `name` is the same in every cluster."""

    number: int
    slot: int
    cluster_cgroup: str
    folder: Path

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return f"198.18.{16 * self.slot}.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        return f"198.18.{16 * self.slot + self.number}.0/24"

    @property
    def link(self) -> str:
        """The name of the link's end on the machine's side, at most 15 bytes."""
        return f"dlc{self.slot}n{self.number}"

    @property
    def cgroup(self) -> str:
        return f"{self.cluster_cgroup}/{self.name}"

    @property
    def agents_cgroup(self) -> str:
        """The part of the node's cgroup for kube-proxy and the agent of NetworkPolicies."""
        return f"{self.cgroup}/agents"

    @property
    def containerd_socket(self) -> Path:
        return self.folder / "run-containerd" / "containerd.sock"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The names, addresses and paths of one cluster."""

    name: str
    slot: int
    node_count: int
    folder: Path

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"the slot is {self.slot}; it must be 0 to {SLOTS - 1}")
        if not 1 <= self.node_count <= NODES_MAX:
            raise ValueError(
                f"the number of nodes is {self.node_count}; it must be 1 to {NODES_MAX}"
            )
        if len(os.fsencode(self.folder / _DEEPEST_SOCKET)) > SOCKET_PATH_MAX:
            raise ValueError(
                f"{self.folder} is too long: the paths of sockets below it would exceed the limit"
            )

    @property
    def nodes(self) -> list[NodeLayout]:
        return [self.node(number) for number in range(1, self.node_count + 1)]

    def node(self, number: int) -> NodeLayout:
        """Return the layout of a node. Its number may exceed node_count: all nodes have routes."""
        if not 1 <= number <= NODES_MAX:
            raise ValueError(f"the node is {number}; it must be 1 to {NODES_MAX}")
        return NodeLayout(
            number=number,
            slot=self.slot,
            cluster_cgroup=self.cgroup,
            folder=self.folder / f"node{number}",
        )

    @property
    def bridge(self) -> str:
        return bridge_name(self.slot)

    @property
    def cgroup(self) -> str:
        return f"dledger-{self.name}"

    @property
    def control_plane_cgroup(self) -> str:
        return f"{self.cgroup}/control-plane"

    @property
    def host_address(self) -> str:
        return f"198.18.{16 * self.slot}.1"

    @property
    def service_range(self) -> str:
        return f"198.19.{16 * self.slot}.0/20"

    @property
    def pods_and_nodes_range(self) -> str:
        return f"198.18.{16 * self.slot}.0/20"

    @property
    def api_service_address(self) -> str:
        """The address of the Service `kubernetes`, always the first of the range."""
        return f"198.19.{16 * self.slot}.1"

    @property
    def api_url(self) -> str:
        return f"https://{self.host_address}:{API_PORT}"

    def _port(self, offset: int) -> int:
        # All clusters share loopback. Outgoing connections use only ports from 32768 on, and tests
        # give their programs 20000 to 32000 (`tools.groups.ports`).
        return 19000 + 10 * self.slot + offset

    @property
    def etcd_port(self) -> int:
        return self._port(0)

    @property
    def etcd_peer_port(self) -> int:
        return self._port(1)

    @property
    def controller_manager_port(self) -> int:
        return self._port(2)

    @property
    def scheduler_port(self) -> int:
        return self._port(3)

    @property
    def unreachable_metric(self) -> int:
        """A route metric unique to this cluster, so that it can remove its own route."""
        return 9000 + self.slot

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def records(self) -> Path:
        return self.folder / "run"

    @property
    def volumes(self) -> Path:
        """The folder of the provisioned volumes, which every node mounts."""
        return self.folder / "volumes"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def description(self) -> Path:
        """The file that records slot and node count between commands."""
        return self.folder / "cluster.json"
