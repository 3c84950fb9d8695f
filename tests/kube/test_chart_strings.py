"""Names that YAML would read as another type, such as the namespace `2024`, stay strings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server.client import Helm

pytest_plugins = ["api_server.fixtures"]

CHART = Path(__file__).resolve().parents[2] / "helm" / "dledger-operator"
OLDEST_KUBERNETES = "1.29.0"
API_VERSIONS = "monitoring.coreos.com/v1/PrometheusRule"
NAMED = ("name", "namespace", "image", "value", "serviceAccountName", "priorityClassName")
MAPS = ("labels", "annotations", "matchLabels")
LISTS = ("resourceNames", "resources", "verbs")

ON = {
    "priorityClassName": "0x10",
    "serviceAccount": {"name": "123"},
    "image": {"repository": "10", "tag": "20"},
    "auditExecutors": {"enabled": True},
    "networkPolicies": {"monitoringNamespaces": ["123", "null"]},
    "monitoring": {
        "metricsService": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
}


def strings(found: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what Kubernetes wants to be a string, with its path."""
    if isinstance(found, list):
        for at, each in enumerate(found):
            yield from strings(each, f"{where}[{at}]")
    if not isinstance(found, dict):
        return
    for key, each in found.items():
        path = f"{where}.{key}"
        if key in NAMED and not isinstance(each, dict):
            yield path, each
        elif (key in MAPS or path == "Service.spec.selector") and isinstance(each, dict):
            yield from ((f"{path}.{name}", value) for name, value in each.items())
        elif key in LISTS and isinstance(each, list):
            yield from ((path, value) for value in each)
        else:
            yield from strings(each, path)


@pytest.mark.parametrize("release", ["2024", "true", "1e3"])
@pytest.mark.parametrize(
    "values",
    [{}, {"watchNamespaces": ["123", "null"]}, {"nameOverride": "e"}],
    ids=["every namespace", "two namespaces", "another name"],
)
def test_every_name_is_a_string(
    helm: Helm, tmp_path: Path, release: str, values: dict[str, Any]
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({**ON, "crds": {"create": False}, **values}))

    text = helm(
        "template", release, str(CHART), "--namespace=2024", f"--values={file}",
        f"--kube-version={OLDEST_KUBERNETES}", f"--api-versions={API_VERSIONS}",
    )  # fmt: skip

    told = [
        (path, value)
        for manifest in yaml.safe_load_all(text)
        if manifest
        for path, value in strings(manifest, manifest["kind"])
    ]
    assert {"2024", release, "123", "0x10", "10:20"} <= {str(value) for _, value in told}
    assert [each for each in told if not isinstance(each[1], str)] == []


def test_the_crds_are_labeled_with_strings(helm: Helm) -> None:
    version = f"--kube-version={OLDEST_KUBERNETES}"
    text = helm("template", "2024", str(CHART), version, "--show-only=templates/crds.yaml")

    for crd in yaml.safe_load_all(text):
        assert crd["metadata"]["labels"]["app.kubernetes.io/instance"] == "2024"
