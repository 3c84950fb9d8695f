"""Building the programs: versions and names from the module files."""

import pytest

from tools.local_cluster import programs, toolchain
from tools.local_cluster.errors import LocalClusterError

GO_MOD = """\
module m

go 1.26

require k8s.io/kubernetes v1.34.4 // indirect

require (
\thelm.sh/helm/v3 v3.19.5
\tk8s.io/kubernetes-other v9.9.9
)
"""


def test_a_required_version_is_found_in_either_form() -> None:
    assert programs.required_version(GO_MOD, "k8s.io/kubernetes") == "v1.34.4"
    assert programs.required_version(GO_MOD, "helm.sh/helm/v3") == "v3.19.5"
    with pytest.raises(LocalClusterError, match="does not require"):
        programs.required_version(GO_MOD, "k8s.io/absent")


def test_the_linker_flags_set_the_versions_of_the_programs() -> None:
    flags = programs.linker_flags(GO_MOD)
    assert "version.gitVersion=v1.34.4" in flags
    assert "version.gitMinor=34" in flags
    assert "internal/version.version=v3.19.5" in flags


def test_the_go_module_requires_every_package_that_is_built() -> None:
    go_mod = (programs.MODULE / "go.mod").read_text()
    assert programs.linker_flags(go_mod)
    for package in programs.PACKAGES:
        assert package.startswith("./") or f"\t{package}\n" in go_mod


def test_go_versions_are_compared_as_numbers() -> None:
    assert toolchain.parse_version("go1.26.10") > toolchain.parse_version("1.26.9")
    assert toolchain.parse_version("go1.26rc1") >= toolchain.parse_version("1.26")
    assert toolchain.parse_version("go1.9") < toolchain.wanted_version(programs.MODULE / "go.mod")
