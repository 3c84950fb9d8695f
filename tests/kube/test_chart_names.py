"""The names of the chart's objects and the numbers in them, whatever the release and the values."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server.client import Helm

pytest_plugins = ["api_server.fixtures"]

CHART = Path(__file__).resolve().parents[2] / "helm" / "dledger-operator"
SERVICE_NAME = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""What the API server admits as the name of a Service."""
ALL = {
    "crds": {"create": False},
    "monitoring": {
        "metricsService": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "archiveCopyMinutes": 2_000_000, "lagEntries": 10**9},
    },
}


def rendered(helm: Helm, folder: Path, release: str) -> list[dict[str, Any]]:
    """Render all objects of a release."""
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(ALL))
    text = helm(
        "template", release, str(CHART), "--values", str(values), "--kube-version=1.29.0",
        "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
    )  # fmt: skip
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("dledger-operator", "dledger-operator"),
        ("east", "east-dledger-operator"),
        ("team.east", "team-east-dledger-operator"),
        ("1.2", "r1-2-dledger-operator"),
        ("dledger-operator.2", "dledger-operator-2"),
        ("a" * 50 + "--b", "a" * 50),
        ("a" * 53, "a" * 52),
    ],
)
def test_every_name_is_one_that_a_service_may_have(
    helm: Helm, tmp_path: Path, release: str, name: str
) -> None:
    objects = rendered(helm, tmp_path, release)

    found = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert ("Deployment", name) in found
    assert ("Service", f"{name}-metrics") in found
    assert all(
        SERVICE_NAME.fullmatch(each) for kind, each in found if not kind.startswith("Cluster")
        and kind not in ("Role", "RoleBinding")
    )  # fmt: skip


def test_a_large_number_of_minutes_or_entries_is_written_in_digits(
    helm: Helm, tmp_path: Path
) -> None:
    """Helm reads the numbers of a file as floating-point numbers."""
    objects = rendered(helm, tmp_path, "east")
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    alerts = {each["alert"]: each for each in rule["spec"]["groups"][0]["rules"]}

    late = alerts["DLedgerArchiveCopyLate"]
    assert late["for"] == "2000000m"
    assert "for 2000000 minutes" in late["annotations"]["summary"]
    assert alerts["DLedgerFollowerLags"]["expr"].endswith("> 1000000000")
