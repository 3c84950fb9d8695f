"""Kubernetes, etcd, Helm and CoreDNS, built from the pinned Go modules beside this file."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from . import cache, toolchain
from .commands import run, show
from .errors import LocalClusterError

MODULE = Path(__file__).with_name("go")

# Import path of the main package -> the name of the program.
PACKAGES = {
    "k8s.io/kubernetes/cmd/kube-apiserver": "kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager": "kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-proxy": "kube-proxy",
    "k8s.io/kubernetes/cmd/kube-scheduler": "kube-scheduler",
    "k8s.io/kubernetes/cmd/kubectl": "kubectl",
    "k8s.io/kubernetes/cmd/kubelet": "kubelet",
    "go.etcd.io/etcd/server/v3": "etcd",
    "helm.sh/helm/v3/cmd/helm": "helm",
    "./coredns": "coredns",
}
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}


def required_version(go_mod: str, module: str) -> str:
    """Return the version that a go.mod requires of a module."""
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise LocalClusterError(f"go.mod does not require {module}")
    return found[1]


def linker_flags(go_mod: str) -> str:
    """Return linker flags that strip the programs and set their versions.

    Programs built from modules report v0.0.0 otherwise, and a chart that requires a minimum version
    of Kubernetes could not be installed.
    """
    kubernetes = required_version(go_mod, "k8s.io/kubernetes")
    major, minor, _ = kubernetes.removeprefix("v").split(".")
    variables = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v3/internal/version.version": required_version(go_mod, "helm.sh/helm/v3"),
    }
    return " ".join(["-s", "-w", *(f"-X={name}={value}" for name, value in variables.items())])


def entry_key(go_version: str) -> str:
    go_mod = MODULE / "go.mod"
    return cache.key(
        go_mod,
        MODULE / "go.sum",
        MODULE / "coredns" / "main.go",
        go_version,
        linker_flags(go_mod.read_text()),
        repr(sorted(PACKAGES.items())),
        repr(sorted(BUILD_ENVIRONMENT.items())),
        os.uname().machine,
    )


def ensure() -> Path:
    """Return the folder of the programs; build them if they are not cached."""
    go = toolchain.find_go(MODULE / "go.mod")
    return cache.ensure(
        "programs", entry_key(toolchain.version(go)), lambda folder: _build(go, folder)
    )


def _build(go: Path, folder: Path) -> None:
    show("building Kubernetes, etcd, Helm and CoreDNS; the first build takes about ten minutes")
    began = time.monotonic()
    flags = linker_flags((MODULE / "go.mod").read_text())
    run(
        go,
        *("build", "-trimpath", "-ldflags", flags, "-o", f"{folder}/", *PACKAGES),
        environment=BUILD_ENVIRONMENT,
        folder=MODULE,
    )
    for package, program in PACKAGES.items():
        if (built := folder / _built_name(package)).name != program:
            built.rename(folder / program)
    show(f"built in {time.monotonic() - began:.0f} s")


def _built_name(package: str) -> str:
    """Return the name that `go build` chooses: the last path element that is not a version."""
    last = package.rstrip("/").split("/")
    return last[-2] if re.fullmatch(r"v\d+", last[-1]) else last[-1]
