"""Whether a machine can run a cluster."""

import platform

import pytest

from tools.local_cluster import host


@pytest.mark.parametrize(
    ("release", "is_too_old"),
    [
        ("4.18.0-553.el8_10.x86_64", True),
        ("5.10.0-30-amd64", True),
        ("5.13.0", False),
        ("6.1.0-30-amd64", False),
        ("unknown", False),
    ],
)
def test_a_kernel_that_is_too_old_for_kube_proxy_is_named(
    release: str, is_too_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(host, "why_no_networks", lambda: None)
    monkeypatch.setattr(host, "_why_no_cgroups", lambda: None)

    why = f"kube-proxy needs Linux 5.13 or newer for nftables, this is {release}"
    assert host.why_not() == (why if is_too_old else None)
