"""Children that are right are not written again, on a real API server.

An apply that changes nothing must leave the version of the object. If it did not, its watch event
would call for the next reconciliation, and so on for ever.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dledger_kube.cluster import Namespace
from dledger_kube.objects import IMAGES, NOW
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.resources import children
from dledger_operator.spec.group import Group

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]
pytestmark = pytest.mark.apiserver

GUARDED: Final = replace(IMAGES, operator_namespace="dledger-system")
"""With NetworkPolicies, as the chart installs the operator."""
PATHS: Final = {
    "ServiceAccount": ("serviceaccounts", "/api/v1"),
    "ConfigMap": ("configmaps", "/api/v1"),
    "Service": ("services", "/api/v1"),
    "PodDisruptionBudget": ("poddisruptionbudgets", "/apis/policy/v1"),
    "NetworkPolicy": ("networkpolicies", "/apis/networking.k8s.io/v1"),
    "StatefulSet": ("statefulsets", "/apis/apps/v1"),
}
EXAMPLES: Final = Path(__file__).parents[2] / "examples"


def example_specs() -> dict[str, dict[str, Any]]:
    """Return the specs of all groups among the examples, by file."""
    return {
        path.name: document["spec"]
        for path in sorted(EXAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "DLedgerGroup"
    }


def versions(namespace: Namespace, group: Group) -> dict[str, str]:
    """Return the version of every child."""
    found = {}
    for kind, name in children.identities(group):
        plural, api = PATHS[kind]
        metadata = namespace.get(plural, name, api)["metadata"]
        found[f"{kind} {name}"] = metadata["resourceVersion"]
    return found


@pytest.mark.parametrize("example", example_specs())
async def test_a_child_that_is_right_is_not_written_again(
    api: KubeApi, namespace: Namespace, example: str
) -> None:
    body = namespace.make_group(**example_specs()[example])
    group = Group.from_body(body, GUARDED)
    await reconcile(api, body, GUARDED, now=NOW, led=False, voters=3)
    before = versions(namespace, group)

    outcome = await reconcile(api, body, GUARDED, now=NOW, led=False, voters=3)

    assert outcome.problem is None
    assert versions(namespace, group) == before
