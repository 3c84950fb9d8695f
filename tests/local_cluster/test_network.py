"""The kernel modules and settings that a cluster's network needs."""

from pathlib import Path

import pytest

from tools.local_cluster import network
from tools.local_cluster.errors import LocalClusterError

SWITCHES = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")


MODPROBE = """\
#!/bin/sh -e
cd {sysctls}
echo "$*" >> loaded
case "$*" in
  nf_conntrack) mkdir netfilter; echo 8192 > netfilter/nf_conntrack_max ;;
  br_netfilter) mkdir bridge; for each in {switches}; do echo 1 > bridge/$each; done ;;
esac
"""


def put_modprobe(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace modprobe by a script; return the folder of the settings."""
    programs, sysctls = folder / "bin", folder / "net"
    programs.mkdir()
    sysctls.mkdir()
    program = programs / "modprobe"
    program.write_text(text.format(sysctls=sysctls, switches=" ".join(SWITCHES)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return sysctls


def test_missing_modules_are_loaded_once_and_the_machine_does_not_filter_bridges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysctls = put_modprobe(tmp_path, MODPROBE, monkeypatch)
    network.ensure_kernel_modules(sysctls)
    network.ensure_kernel_modules(sysctls)
    assert (sysctls / "loaded").read_text().split() == ["nf_conntrack", "br_netfilter"]
    assert [(sysctls / "bridge" / name).read_text() for name in SWITCHES] == ["0", "0", "0"]


def test_a_kernel_with_built_in_modules_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysctls = put_modprobe(tmp_path, "#!/bin/sh\nexit 1\n", monkeypatch)
    for name in ("bridge/bridge-nf-call-iptables", "netfilter/nf_conntrack_max"):
        (sysctls / name).parent.mkdir()
        (sysctls / name).write_text("1")
    network.ensure_kernel_modules(sysctls)
    assert (sysctls / "bridge" / "bridge-nf-call-iptables").read_text() == "1"


def test_a_missing_module_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#!/bin/sh\necho not found in /lib/modules >&2\nexit 1\n"
    sysctls = put_modprobe(tmp_path, text, monkeypatch)
    with pytest.raises(LocalClusterError, match=r"modprobe nf_conntrack\nnot found"):
        network.ensure_kernel_modules(sysctls)
