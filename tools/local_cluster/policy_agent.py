"""kube-router, the agent on each node that enforces NetworkPolicies; its other parts are off.

The program is built from a Go module of its own, because it needs older libraries than Kubernetes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from . import cache, toolchain
from .commands import run, show
from .layout import Layout, NodeLayout
from .programs import BUILD_ENVIRONMENT

MODULE = Path(__file__).with_name("policy_agent")
PACKAGE = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
PROGRAM = "kube-router"
CERTIFICATE = "kube-router"
LINKER_FLAGS = "-s -w"


def ensure() -> Path:
    """Return the program; build it if it is not cached."""
    go = toolchain.find_go(MODULE / "go.mod")
    key = cache.key(
        MODULE / "go.mod",
        MODULE / "go.sum",
        toolchain.version(go),
        LINKER_FLAGS,
        repr(sorted(BUILD_ENVIRONMENT.items())),
        os.uname().machine,
    )
    return cache.ensure("policy-agent", key, lambda folder: _build(go, folder)) / PROGRAM


def _build(go: Path, folder: Path) -> None:
    show("building kube-router, which enforces NetworkPolicies; this takes about two minutes")
    began = time.monotonic()
    run(
        go,
        *("build", "-trimpath", "-ldflags", LINKER_FLAGS, "-o", folder / PROGRAM, PACKAGE),
        environment=BUILD_ENVIRONMENT,
        folder=MODULE,
    )
    show(f"built in {time.monotonic() - began:.0f} s")


def command(program: Path, layout: Layout, node: NodeLayout) -> list[str]:
    return [
        str(program),
        f"--kubeconfig={layout.pki / f'{CERTIFICATE}.kubeconfig'}",
        f"--hostname-override={node.name}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--enable-ipv6=false",
        f"--service-cluster-ip-range={layout.service_range}",
        "--health-port=0",
    ]
