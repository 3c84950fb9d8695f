"""The CRD schemas and the operator agree on defaults, names and limits."""

from typing import Any

import pytest

from api_server.client import ApiServer
from api_server.objects import Object, audit, check, group, replace, switchover
from dledger_operator import names
from dledger_operator.spec.audit_request import AuditRequest
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.replace_request import ReplaceRequest
from dledger_operator.spec.switchover_request import SwitchoverRequest
from tools import crd_reference

pytest_plugins = ["api_server.fixtures"]

IMAGES = ImageDefaults(reference="dledger-node:1", pull_policy="IfNotPresent")
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in crd_reference.load(crd_reference.CRDS)}

GROUPS: list[dict[str, Any]] = [
    {},
    {"storage": {"size": "1.5Gi"}, "log": {"segmentSize": "512Mi"}},
    {"storage": {"size": 3221225472}, "log": {"segmentSize": 1073741824}},
    {"election": {"heartbeatInterval": "20ms"}, "roles": {"master": "primary"}},
    {"resources": {"limits": {"cpu": 1, "memory": "1.5Gi"}}},
    {"image": {"tag": "7", "pullPolicy": "Always"}, "services": {"slave": {"type": "NodePort"}}},
    {"preferredLeader": {"zone": "eu-1a"}},
    {"audit": {"schedule": "30 3 * * SUN", "timeZone": "Europe/Berlin"}},
    {
        "audit": {
            "schedule": "0 0 L * *",
            "keep": 3,
            "readRate": "1Gi",
            "resources": {"limits": {"memory": "3Gi"}},
        }
    },
    {"audit": {"afterFailover": True, "beforeScalingDown": True}},
    {"preferredLeader": {"nodeLabels": {"disk": "fast"}, "stableFor": "5m"}},
    {"scheduling": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"disk": "fast"}}},
]


def without_defaults(sent: Object, checked: Object) -> Object:
    """An object as the operator would read it if the schema had no defaults."""
    return {**checked, "spec": sent["spec"]}


@pytest.mark.parametrize("spec", GROUPS, ids=str)
def test_the_operators_defaults_for_groups_match_the_schema(
    api_server: ApiServer, spec: dict[str, Any]
) -> None:
    sent = group(**spec)
    checked = check(api_server, sent)

    assert Group.from_body(checked, IMAGES) == Group.from_body(
        without_defaults(sent, checked), IMAGES
    )


@pytest.mark.parametrize(
    "spec",
    [{}, {"ttlAfterFinished": "90m", "readRate": 5000000}, {"resources": {"requests": {"cpu": 2}}}],
    ids=str,
)
def test_the_operators_defaults_for_audits_match_the_schema(
    api_server: ApiServer, spec: dict[str, Any]
) -> None:
    sent = audit(**spec)
    checked = check(api_server, sent)

    assert AuditRequest.from_body(checked) == AuditRequest.from_body(
        without_defaults(sent, checked)
    )


@pytest.mark.parametrize(
    "spec", [{}, {"timeout": "5s"}, {"maxLagEntries": 0, "ttlAfterFinished": "90m"}], ids=str
)
def test_the_operators_defaults_for_switchovers_match_the_schema(
    api_server: ApiServer, spec: dict[str, Any]
) -> None:
    sent = switchover(**spec)
    checked = check(api_server, sent)
    stored = {**checked, "metadata": {**checked["metadata"], "uid": "u"}}

    assert SwitchoverRequest.from_body(stored) == SwitchoverRequest.from_body(
        without_defaults(sent, stored)
    )


@pytest.mark.parametrize("spec", [{}, {"timeout": "90m", "ttlAfterFinished": "90m"}], ids=str)
def test_the_operators_defaults_for_replacements_match_the_schema(
    api_server: ApiServer, spec: dict[str, Any]
) -> None:
    sent = replace(**spec)
    stored = check(api_server, sent)

    assert ReplaceRequest.from_body(stored) == ReplaceRequest.from_body(
        without_defaults(sent, stored)
    )


def test_the_names_of_the_kinds_match_the_operators() -> None:
    version = f"{names.API_GROUP}/{names.API_VERSION}"
    served = {
        kind: (
            f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}",
            crd["spec"]["names"]["plural"],
        )
        for kind, crd in CRDS.items()
    }

    assert served == {
        names.GROUP_KIND: (version, names.GROUPS_PLURAL),
        names.AUDIT_KIND: (version, names.AUDITS_PLURAL),
        names.SWITCHOVER_KIND: (version, names.SWITCHOVERS_PLURAL),
        names.REPLACE_KIND: (version, names.REPLACES_PLURAL),
    }


def test_the_longest_child_name_fits_a_label() -> None:
    longest_group = "g" * names.GROUP_NAME_LENGTH_MAX
    children = [
        names.nodes_service(longest_group),
        names.master_service(longest_group),
        names.slave_service(longest_group),
        names.settings_config_map(longest_group),
        names.service_account(longest_group),
        # The revision hash in the label that the StatefulSet controller adds to pods.
        f"{names.stateful_set(longest_group)}-0123456789",
        names.audit_job("a" * names.AUDIT_NAME_LENGTH_MAX),
    ]

    assert max(map(len, children)) <= 63
