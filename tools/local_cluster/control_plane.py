"""The control plane: etcd, the API server, the controllers, the scheduler and the cluster's DNS.

It runs on the machine itself, not on a node, so the loss of a node does not affect it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import cgroups, processes
from .commands import run
from .errors import LocalClusterError, with_log
from .layout import API_PORT, DIRECT_ENVIRONMENT, Layout
from .waiting import answers, wait_until

READY_SECONDS = 60.0
# Its CPU weight, in nodes. Outside of the cluster's cgroup, busy pods would leave it almost no CPU
# time, unlike a control plane that has a machine of its own.
CPU_WEIGHT = 2

# The controller manager creates volumes with mode 0750. It runs under the user id of the project's
# images, so that their pods can write; the capabilities let it read its keys and delete files of
# pods that run as root.
VOLUME_OWNER = "10001"
_AS_VOLUME_OWNER = [
    *("setpriv", "--reuid", VOLUME_OWNER, "--regid", VOLUME_OWNER, "--clear-groups"),
    *("--inh-caps", "+dac_override,+fowner", "--ambient-caps", "+dac_override,+fowner"),
]
# Kubernetes' source fixes the provisioner's folder. The controller manager's own mount namespace
# gives each cluster a separate folder there.
VOLUMES_MOUNT = Path("/tmp/hostpath_pv")
_WITH_OWN_VOLUMES = (
    *("unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec"),
    f'mount --bind "$0" {VOLUMES_MOUNT}; exec "$@"',
)

MANIFEST = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/host-path
reclaimPolicy: Delete
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- {apiGroups: [""], resources: [services, namespaces, pods], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:kube-router"}
rules:
- apiGroups: [""]
  resources: [services, namespaces, pods, nodes, endpoints]
  verbs: [get, list, watch]
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:kube-router"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kube-router"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-router"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:volume-resizer"}
rules:
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [list, watch]}
- {apiGroups: [""], resources: [persistentvolumeclaims/status], verbs: [patch]}
- {apiGroups: [""], resources: [persistentvolumes], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:volume-resizer"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:volume-resizer"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:volume-resizer"}]
"""


@dataclass(frozen=True)
class Program:
    """One program of the control plane, and the check that it serves requests."""

    name: str
    command: list[str]
    is_ready: Callable[[], bool]


def etcd(layout: Layout, programs: Path) -> Program:
    client = f"http://127.0.0.1:{layout.etcd_port}"
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    command = [
        str(programs / "etcd"),
        f"--data-dir={layout.folder / 'etcd'}",
        "--log-level=warn",
        # A power cut of the machine may lose the cluster, so no write has to wait for the disk.
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]
    return Program("etcd", command, lambda: answers(f"{client}/health"))


def api_server(layout: Layout, programs: Path) -> Program:
    pki = layout.pki
    command = [
        str(programs / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        f"--bind-address={layout.host_address}",
        f"--advertise-address={layout.host_address}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={layout.service_range}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        # The machine's DNS does not know the node names.
        "--kubelet-preferred-address-types=InternalIP",
        # The lease-based default would wait after a restart until the old lease expires.
        "--endpoint-reconciler-type=master-count",
        "--allow-privileged",
    ]
    # This page needs no client certificate.
    return Program("kube-apiserver", command, lambda: answers(f"{layout.api_url}/readyz"))


def controller_manager(layout: Layout, programs: Path) -> Program:
    command = [
        *(*_WITH_OWN_VOLUMES, str(layout.volumes)),
        *_AS_VOLUME_OWNER,
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={layout.pki / 'controller-manager.kubeconfig'}",
        f"--service-account-private-key-file={layout.pki / 'sa.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--enable-hostpath-provisioner",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.controller_manager_port}",
        # Notice a lost node within 20 s, not 50 s, because tests wait for it.
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
    ]
    health = f"https://127.0.0.1:{layout.controller_manager_port}/healthz"
    return Program("kube-controller-manager", command, lambda: answers(health))


def scheduler(layout: Layout, programs: Path) -> Program:
    command = [
        str(programs / "kube-scheduler"),
        f"--kubeconfig={layout.pki / 'scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.scheduler_port}",
    ]
    health = f"https://127.0.0.1:{layout.scheduler_port}/healthz"
    return Program("kube-scheduler", command, lambda: answers(health))


def coredns(layout: Layout, programs: Path) -> Program:
    corefile = layout.folder / "Corefile"
    corefile.write_text(f"""\
.:53 {{
    bind {layout.host_address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.pki / "coredns.kubeconfig"} {layout.name}
        pods insecure
        ttl 2
    }}
    cache 2
}}
""")
    command = [str(programs / "coredns"), "-conf", str(corefile)]
    return Program("coredns", command, lambda: _accepts(layout.host_address, 53))


def volume_resizer(layout: Layout) -> Program:
    """Return the program that grows disks; it runs in a cluster with disks that can grow."""
    settings = layout.folder / "volume-resizer.json"
    files = {
        "authority": layout.pki / "ca.crt",
        "certificate": layout.pki / "volume-resizer.crt",
        "key": layout.pki / "volume-resizer.key",
    }
    address = {"host": layout.host_address, "port": API_PORT}
    settings.write_text(json.dumps(address | {name: str(file) for name, file in files.items()}))
    command = [sys.executable, "-I", str(Path(__file__).with_name("volume_resizer.py"))]
    return Program(VOLUME_RESIZER, [*command, str(settings)], lambda: True)


def _accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def record(layout: Layout, name: str) -> Path:
    return layout.records / f"{name}.json"


def log(layout: Layout, name: str) -> Path:
    return layout.logs / f"{name}.log"


def ensure_started(layout: Layout, program: Program) -> None:
    process = processes.read_record(record(layout, program.name)) or processes.start(
        program.command,
        record=record(layout, program.name),
        log=log(layout, program.name),
        owner=layout.folder,
    )
    with contextlib.suppress(ProcessLookupError):  # it has ended, which `wait_ready` reports
        cgroups.enter(layout.control_plane_cgroup, process.pid)


def wait_ready(layout: Layout, program: Program) -> None:
    """Wait until a program serves; raises LocalClusterError as soon as it has ended."""
    log_file = log(layout, program.name)

    def is_ready() -> bool:
        if processes.read_record(record(layout, program.name)) is None:
            raise LocalClusterError(with_log(f"{program.name} has ended", log_file))
        return program.is_ready()

    wait_until(
        f"{program.name} is ready",
        is_ready,
        deadline_seconds=READY_SECONDS,
        explain=lambda: with_log(f"{program.name} is running but not ready", log_file),
    )


def start(layout: Layout, programs: Path) -> None:
    """Start the missing programs; return when the API serves. Its clients may take longer."""
    cgroups.create_for_programs(layout.control_plane_cgroup, CPU_WEIGHT)
    layout.volumes.mkdir(exist_ok=True)
    os.chown(layout.volumes, int(VOLUME_OWNER), int(VOLUME_OWNER))
    for program in (etcd(layout, programs), api_server(layout, programs)):
        ensure_started(layout, program)
        wait_ready(layout, program)
    for program in api_clients(layout, programs):
        ensure_started(layout, program)
    kubectl = [str(programs / "kubectl"), f"--kubeconfig={layout.kubeconfig}"]
    run(
        *(*kubectl, "apply", "--server-side", "--filename=-"),
        input_text=MANIFEST,
        environment=DIRECT_ENVIRONMENT,
    )


def api_clients(layout: Layout, programs: Path) -> list[Program]:
    return [
        controller_manager(layout, programs),
        scheduler(layout, programs),
        coredns(layout, programs),
    ]


def wait_for_clients(layout: Layout, programs: Path) -> None:
    for program in api_clients(layout, programs):
        wait_ready(layout, program)


VOLUME_RESIZER = "volume-resizer"
NAMES = ("kube-controller-manager", "kube-scheduler", "coredns", "kube-apiserver", "etcd")


def running(layout: Layout) -> dict[str, bool]:
    return {name: processes.read_record(record(layout, name)) is not None for name in NAMES}


def down(layout: Layout) -> None:
    """Stop the clients, then the API server, then etcd, so that no program loses its server."""
    processes.stop_recorded(record(layout, name) for name in (VOLUME_RESIZER, *NAMES[:3]))
    # Kill the API server: its state is in etcd, and SIGTERM would make it wait for lost watchers.
    processes.stop_recorded([record(layout, "kube-apiserver")], stop_seconds=0)
    processes.stop_recorded([record(layout, "etcd")])
