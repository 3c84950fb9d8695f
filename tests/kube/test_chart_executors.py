"""What the chart grants for audits with executors, and that it grants nothing without."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server.client import Helm
from dledger_operator import config

pytest_plugins = ["api_server.fixtures"]
CHART = Path(__file__).resolve().parents[2] / "helm" / "dledger-operator"
NAME = "ops:dl-dledger-operator:audit-driver"
RBAC = "rbac.authorization.k8s.io"

Object = dict[str, Any]


def rendered(helm: Helm, folder: Path, values: Object) -> list[Object]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    version = "--kube-version=1.34.0"
    text = helm("template", "dl", str(CHART), "--namespace=ops", version, f"--values={file}")
    return [each for each in yaml.safe_load_all(text) if each]


def rules(manifests: list[Object]) -> list[Object]:
    """The rules that the operator's own bindings grant."""
    bound = {each["roleRef"]["name"] for each in manifests if each["kind"].endswith("RoleBinding")}
    roles = [each for each in manifests if each["kind"] in ("Role", "ClusterRole")]
    return [rule for each in roles if each["metadata"]["name"] in bound for rule in each["rules"]]


def settings(manifests: list[Object]) -> config.OperatorSettings:
    (deployment,) = (each for each in manifests if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    return config.read([], given)


@pytest.mark.parametrize(
    ("values", "kind", "namespaces"),
    [({}, "ClusterRole", [None]), ({"watchNamespaces": ["a", "b"]}, "Role", ["a", "b"])],
    ids=["every namespace", "two namespaces"],
)
def test_audits_have_executors_only_if_the_values_allow_it(
    helm: Helm, tmp_path: Path, values: Object, kind: str, namespaces: list[str | None]
) -> None:
    allowed = rendered(helm, tmp_path, values | {"auditExecutors": {"enabled": True}})
    without = rendered(helm, tmp_path, values)
    roles = [each for each in allowed if each["metadata"]["name"] == NAME]

    assert settings(allowed).audit_api_ports == (443, 6443)
    assert settings(allowed).audit_driver_role == f"{kind}/{NAME}"
    assert [each["kind"] for each in roles] == [kind] * len(namespaces)
    assert [each["metadata"].get("namespace") for each in roles] == namespaces
    for each in roles:
        (rule,) = each["rules"]
        assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    bound = [rule for rule in rules(allowed) if "bind" in rule["verbs"]]
    assert len(bound) == len(namespaces)
    for rule in bound:
        assert (rule["resources"], rule["resourceNames"]) == ([f"{kind.lower()}s"], [NAME])
    assert settings(without).audit_driver_role == ""
    assert NAME not in json.dumps(without)
    assert not [rule for rule in rules(without) if RBAC in rule["apiGroups"]]


def test_the_values_name_the_ports_of_the_api_servers(helm: Helm, tmp_path: Path) -> None:
    chosen = {"auditExecutors": {"enabled": True, "apiServerPorts": [8443, 16443]}}

    assert settings(rendered(helm, tmp_path, chosen)).audit_api_ports == (8443, 16443)
