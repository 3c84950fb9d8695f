"""The metadata of the Helm chart: its values, their schema and its version."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server.client import CommandError, Helm
from tools import crd_reference

pytest_plugins = ["api_server.fixtures"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dledger-operator"
OLDEST_KUBERNETES = "1.29.0"

UNACCEPTABLE = [
    "replicaCount=2",
    "image.name=operator",
    "nodeImage.pullPolicy=Always",
    "crds.install=true",
    "rbac.scope=cluster",
    "serviceAccount.labels.a=b",
    "serviceAccount.name=My_SA",
    "monitoring.podMonitor.enable=true",
    "networkPolicies.enable=true",
    "networkPolicies.monitoringNamespaces={Team A}",
    "image.repository=",
    "image.digest=latest",
    "image.pullPolicy=Sometimes",
    "logLevel=loud",
    "logFormat=xml",
    "watchNamespaces={Team A}",
    "watchNamespaces=team-a",
    "fullnameOverride=Operator",
    "resources.cpu=1",
    "extraEnv[0].name=DLEDGER_OPERATOR_METRICS_PORT",
]


@pytest.mark.parametrize("setting", UNACCEPTABLE)
def test_an_unknown_or_invalid_value_is_refused(helm: Helm, setting: str) -> None:
    key = re.split(r"[.=\[]", setting)[0]

    with pytest.raises(CommandError, match=rf"specifications of the schema(?s:.*)\b{key}\b"):
        helm("template", "dl", str(CHART), "--set", setting, f"--kube-version={OLDEST_KUBERNETES}")


def test_a_kubernetes_version_too_old_for_the_schemas_is_refused(helm: Helm) -> None:
    with pytest.raises(CommandError, match=r"incompatible with Kubernetes v1\.28\.15"):
        helm("template", "dl", str(CHART), "--kube-version=1.28.15")


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_annotations_for_artifact_hub_list_every_crd() -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    listed = yaml.safe_load(annotations["artifacthub.io/crds"])

    assert {(crd["name"], crd["kind"], crd["version"]) for crd in listed} == {
        (
            crd["metadata"]["name"],
            crd["spec"]["names"]["kind"],
            crd["spec"]["versions"][0]["name"],
        )
        for crd in crd_reference.load(crd_reference.CRDS)
    }


def test_every_value_of_the_schema_is_documented_in_the_values_file() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()
    lines = text.splitlines()
    commented = {
        path for path, line in keys(yaml.compose(text)) if lines[line - 1].lstrip().startswith("#")
    }

    assert set(leaves(schema, schema["definitions"])) - commented == {("global",)}


def leaves(
    schema: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all values in the schema."""
    for name, child in schema["properties"].items():
        inner = definitions[child["$ref"].rpartition("/")[2]] if "$ref" in child else child
        if "properties" in inner and name != "resources":
            yield from leaves(inner, definitions, (*path, name))
        else:
            yield (*path, name)


def keys(
    node: yaml.Node | None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the paths of all keys of a YAML document, each with its line number from 0."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, key.value)
            yield inner, key.start_mark.line
            yield from keys(value, inner)
