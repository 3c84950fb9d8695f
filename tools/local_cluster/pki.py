"""Certificates, keys and kubeconfig files of a cluster, created by openssl.

They are deleted with the cluster, so they are valid for ten years and never renewed.
"""

from __future__ import annotations

import os
from pathlib import Path

from .commands import run
from .layout import Layout, NodeLayout

DAYS = "3650"
_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def ensure_authority(layout: Layout) -> None:
    """Create the certificate authority and the service account key, unless they exist."""
    folder = layout.pki
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / "ca.crt").exists():
        run(
            *("openssl", "req", "-x509", *_CURVE, "-days", DAYS, "-subj", "/CN=local-cluster"),
            *("-keyout", folder / "ca.key", "-out", folder / "ca.crt.new"),
        )
        os.rename(folder / "ca.crt.new", folder / "ca.crt")
    if not (folder / "sa.pub").exists():
        run("openssl", "genrsa", "-out", folder / "sa.key", "2048")
        run(
            *("openssl", "rsa", "-in", folder / "sa.key", "-pubout"),
            *("-out", folder / "sa.pub.new"),
        )
        os.rename(folder / "sa.pub.new", folder / "sa.pub")


def ensure_certificate(layout: Layout, name: str, subject: str, *alternatives: str) -> None:
    """Create a key and a certificate for TLS servers and clients, unless they exist."""
    folder = layout.pki
    if (folder / f"{name}.crt").exists():
        return
    request = folder / f"{name}.csr"
    run(
        *("openssl", "req", *_CURVE, "-subj", subject),
        *("-keyout", folder / f"{name}.key", "-out", request),
    )
    extensions = folder / f"{name}.ext"
    extensions.write_text(
        f"subjectAltName={','.join(alternatives or (f'DNS:{name}',))}\n"
        "extendedKeyUsage=serverAuth,clientAuth\n"
    )
    run(
        *("openssl", "x509", "-req", "-in", request, "-days", DAYS, "-extfile", extensions),
        *("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial"),
        *("-out", folder / f"{name}.crt.new"),
    )
    # Rename last, so that an existing certificate is complete and has its key.
    os.rename(folder / f"{name}.crt.new", folder / f"{name}.crt")
    request.unlink()
    extensions.unlink()


def ensure_control_plane(layout: Layout) -> None:
    """Create the certificates and kubeconfigs of the control plane and the administrator."""
    ensure_authority(layout)
    ensure_certificate(
        layout,
        "apiserver",
        "/CN=kube-apiserver",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
        f"IP:{layout.host_address}",
        f"IP:{layout.api_service_address}",
    )
    # Kubernetes or `control_plane.MANIFEST` has roles for these user names; the last two get theirs
    # by group.
    ensure_certificate(layout, "volume-resizer", "/CN=system:volume-resizer")
    ensure_certificate(layout, "controller-manager", "/CN=system:kube-controller-manager")
    ensure_certificate(layout, "scheduler", "/CN=system:kube-scheduler")
    ensure_certificate(layout, "kube-proxy", "/CN=system:kube-proxy")
    ensure_certificate(layout, "coredns", "/CN=system:coredns")
    ensure_certificate(layout, "kube-router", "/CN=system:kube-router")
    ensure_certificate(layout, "kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
    ensure_certificate(layout, "admin", "/O=system:masters/CN=admin")
    for name in ("controller-manager", "scheduler", "kube-proxy", "coredns", "kube-router"):
        write_kubeconfig(layout, layout.pki / f"{name}.kubeconfig", name)
    write_kubeconfig(layout, layout.kubeconfig, "admin")


def ensure_node(layout: Layout, node: NodeLayout) -> None:
    ensure_certificate(
        layout,
        node.name,
        f"/O=system:nodes/CN=system:node:{node.name}",
        f"DNS:{node.name}",
        f"IP:{node.address}",
    )
    write_kubeconfig(layout, layout.pki / f"{node.name}.kubeconfig", node.name)


def kubeconfig_text(server: str, context: str, authority: Path, certificate: Path) -> str:
    key = certificate.with_suffix(".key")
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: {context}
  cluster: {{server: "{server}", certificate-authority: "{authority}"}}
users:
- name: {context}
  user: {{client-certificate: "{certificate}", client-key: "{key}"}}
contexts:
- name: {context}
  context: {{cluster: {context}, user: {context}}}
current-context: {context}
"""


def write_kubeconfig(layout: Layout, path: Path, certificate: str) -> None:
    text = kubeconfig_text(
        layout.api_url,
        layout.name,
        layout.pki / "ca.crt",
        layout.pki / f"{certificate}.crt",
    )
    path.write_text(text)
    path.chmod(0o600)
