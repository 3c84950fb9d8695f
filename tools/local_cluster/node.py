"""One node: a container runtime, a kubelet and a proxy in separate namespaces.

This module prepares the node's files, and starts and stops `node_init.py`, which runs inside.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import (
    cgroups,
    containerd,
    disks,
    growing_disks,
    image_store,
    network,
    pki,
    policy_agent,
    processes,
)
from .control_plane import VOLUMES_MOUNT
from .errors import LocalClusterError, with_log
from .layout import Layout, NodeLayout
from .pause_image import PAUSE_IMAGE
from .processes import Identity
from .waiting import wait_until

INIT_SECONDS = 10.0
# The CPU weight of a node's network agents, which follow every change of a pod. They usually are
# pods that request a quarter of a processor or nothing at all. Beside the pods of a node with two
# processors, they get 6 % of a busy machine with cgroup version 1, and 13 % with version 2. Outside
# of the cluster's cgroup, three nodes' agents would get as much as all of its pods.
AGENTS_CPU_WEIGHT = 1 / 8
CTR_ADDRESS = "/run/containerd/containerd.sock"

# Debian's folder of the network plugins.
CNI_PLUGINS = "/usr/lib/cni"


@dataclass(frozen=True, kw_only=True)
class Supplies:
    """The programs and images from which a node is built."""

    programs: Path
    """The folder of the kubelet and the other programs."""
    policy_agent: Path
    """The program that enforces NetworkPolicies."""
    pause_archive: Path
    image_store: Path | None
    """The initial storage of a new node's container runtime; None for an empty one."""


def mounts(layout: Layout, node: NodeLayout) -> list[tuple[Path, Path]]:
    """Return each of a node's folders with the machine's path that it is mounted over.

    The daemons' sources fix most of these paths; without the mounts, nodes would share them.
    """
    own = {
        "kubelet": "/var/lib/kubelet",
        "cni-cache": "/var/lib/cni",
        "pod-logs": "/var/log/pods",
        "container-logs": "/var/log/containers",
        "run-containerd": "/run/containerd",
    }
    pairs = [(node.folder / source, Path(point)) for source, point in own.items()]
    return [*pairs, (layout.volumes, VOLUMES_MOUNT)]


def mount_points(layout: Layout) -> list[Path]:
    """Return the folders that must exist on the machine to be mounted over."""
    return [*(point for _, point in mounts(layout, layout.node(1))), Path("/run/netns")]


def storage(node: NodeLayout) -> Path:
    """Return the folder of a node's images and containers."""
    return node.folder / "containerd"


def containerd_config(node: NodeLayout) -> str:
    return f"""\
version = 2
root = "{storage(node)}"
state = "/run/containerd"
[grpc]
  address = "{CTR_ADDRESS}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Lowering a score below one's own needs a capability that a sandboxed root may lack.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{node.folder / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def cni_config(node: NodeLayout) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "dataDir": str(node.folder / "ipam"),
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        # A pod may reach itself through its own Service.
        "hairpinMode": True,
        "ipam": ipam,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}


def kubelet_config(layout: Layout, node: NodeLayout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node.name}.key"),
        "containerRuntimeEndpoint": f"unix://{CTR_ADDRESS}",
        "clusterDNS": [layout.host_address],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.folder / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        # From 1.35 on, a kubelet rejects cgroup version 1 without this; 1.34 only warns.
        "failCgroupV1": False,
        "failSwapOn": False,
        # All nodes share the machine's disk, so they must not evict pods when it runs full.
        "evictionHard": {
            "imagefs.available": "0%",
            "nodefs.available": "0%",
            "memory.available": "100Mi",
        },
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "oomScoreAdj": 0,
        "maxPods": 60,
        "serializeImagePulls": False,
        # Failure to change kernel settings and scores, as in a sandbox, only causes warnings.
        "featureGates": {"KubeletInUserNamespace": True},
    }


def proxy_config(layout: Layout, node: NodeLayout) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.pki / "kube-proxy.kubeconfig")},
        # kube-router saves and restores the whole iptables table "filter". A kube-proxy in its mode
        # iptables would lose rules there, and fail to write others until a Service changes.
        "mode": "nftables",
        "clusterCIDR": layout.pods_and_nodes_range,
        "hostnameOverride": node.name,
        # Zero keeps the size of the connection table, which belongs to the machine.
        "conntrack": {"maxPerCore": 0},
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }


def init_specification(layout: Layout, node: NodeLayout, supplies: Supplies) -> dict[str, Any]:
    programs = supplies.programs
    import_pause = containerd.ctr(Path(CTR_ADDRESS), "images", "import", supplies.pause_archive)
    kubelet = [
        str(programs / "kubelet"),
        f"--config={node.folder / 'kubelet.json'}",
        f"--kubeconfig={layout.pki / f'{node.name}.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--cert-dir={node.folder / 'kubelet-pki'}",
        "--v=1",
    ]
    proxy = [str(programs / "kube-proxy"), f"--config={node.folder / 'kube-proxy.json'}"]
    runtime = ["containerd", "--config", str(node.folder / "containerd.toml")]
    commands: dict[str, tuple[list[str], list[list[str]]]] = {
        "containerd": (runtime, [[str(word) for word in import_pause]]),
        "kubelet": (kubelet, []),
        "kube-proxy": (proxy, []),
        "kube-router": (policy_agent.command(supplies.policy_agent, layout, node), []),
    }
    for agent in ("kube-proxy", "kube-router"):
        command, then = commands[agent]
        commands[agent] = cgroups.entering(node.agents_cgroup, command), then
    return {
        "hostname": node.name,
        "disks": [[str(file), str(point)] for file, point in disks.mounts(node)],
        "settings_folder": str(node.folder / "kernel-settings"),
        "mounts": [[str(source), str(point)] for source, point in mounts(layout, node)],
        "daemons": [
            {"name": name, "command": command, "then": then, "log": str(log(layout, node, name))}
            for name, (command, then) in commands.items()
        ],
    }


def record(layout: Layout, node: NodeLayout) -> Path:
    return layout.records / f"{node.name}.json"


def log(layout: Layout, node: NodeLayout, program: str) -> Path:
    return layout.logs / f"{node.name}-{program}.log"


def _write_files(layout: Layout, node: NodeLayout, supplies: Supplies) -> Path:
    # A real machine keeps this folder in memory, so it must not survive a restart.
    shutil.rmtree(node.folder / "run-containerd", ignore_errors=True)
    for source, _ in mounts(layout, node):
        source.mkdir(parents=True, exist_ok=True)
    for name in ("cni", "kernel-settings"):
        (node.folder / name).mkdir(exist_ok=True)
    (node.folder / "containerd.toml").write_text(containerd_config(node))
    # Pods can only resolve cluster names: no DNS server runs at this address.
    (node.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    specification = init_specification(layout, node, supplies)
    files = {
        "cni/10-pods.conflist": cni_config(node),
        "kubelet.json": kubelet_config(layout, node),
        "kube-proxy.json": proxy_config(layout, node),
        "init.json": specification,
    }
    for name, content in files.items():
        (node.folder / name).write_text(json.dumps(content, indent=1))
    return node.folder / "init.json"


def is_running(layout: Layout, node: NodeLayout) -> bool:
    return processes.read_record(record(layout, node)) is not None


def init_process(layout: Layout, node: NodeLayout) -> Identity | None:
    """Return the node's process 1, with its id on the machine."""
    outer = processes.read_record(record(layout, node))
    inner = processes.children(outer) if outer else []
    return inner[0] if inner else None


def start(layout: Layout, node: NodeLayout, supplies: Supplies) -> None:
    """Start a node, unless it is running. It becomes Ready some seconds later."""
    if is_running(layout, node) and network.is_connected(node):
        network.set_node_link(node, up=True)
        return
    # A running node without a link was interrupted during its start.
    stop(layout, node)
    pki.ensure_node(layout, node)
    cgroups.create(node.cgroup)
    cgroups.create_for_programs(node.agents_cgroup, AGENTS_CPU_WEIGHT)
    for file in growing_disks.files(node):
        growing_disks.attach(file)
    specification = _write_files(layout, node, supplies)
    if supplies.image_store and not storage(node).exists():
        image_store.clone(supplies.image_store, storage(node))
    init = Path(__file__).with_name("node_init.py")
    processes.start(
        [
            *("unshare", "--mount", "--net", "--pid", "--ipc", "--uts"),
            *("--fork", "--kill-child", "--mount-proc", "--propagation", "private"),
            *(sys.executable, "-I", init, specification),
        ],
        record=record(layout, node),
        log=log(layout, node, "init"),
        owner=layout.folder,
    )
    wait_until(
        f"{node.name} has its process 1",
        lambda: init_process(layout, node) is not None or _fail_if_ended(layout, node),
        deadline_seconds=INIT_SECONDS,
        poll_seconds=0.02,
    )
    inner = init_process(layout, node)
    if inner is None:
        _fail_if_ended(layout, node)
    else:
        network.connect_node(layout, node, inner.pid)


def _fail_if_ended(layout: Layout, node: NodeLayout) -> bool:
    if not is_running(layout, node):
        message = f"{node.name} ended during its start"
        raise LocalClusterError(with_log(message, log(layout, node, "init")))
    return False


def stop(layout: Layout, node: NodeLayout) -> None:
    """Kill all processes of a node at once, like a power cut."""
    network.disconnect_node(node)
    outer = processes.read_record(record(layout, node))
    if outer:
        # The child, process 1, ends after all others in its namespace; then `unshare` ends.
        processes.stop(processes.children(outer), stop_seconds=0)
        processes.stop([outer], stop_seconds=0)
    record(layout, node).unlink(missing_ok=True)
    growing_disks.detach(node)
    cgroups.remove(node.cgroup)
