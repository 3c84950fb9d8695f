"""The form of the CRD schemas: descriptions, defaults, limits; without an API server."""

import difflib
from collections.abc import Iterator
from typing import Any

import pytest

from dledger_formats.audit import Verdict
from dledger_formats.http.status import FlushDiskType
from dledger_formats.settings import NodeSettings
from dledger_operator.spec import member_settings
from tools import crd_reference

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in crd_reference.load(crd_reference.CRDS)}
NODE = NodeSettings(group="g", self_id="n0", peers={"n0": "g:40911"}, store_base_dir="/data")


def root(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(kind: str) -> dict[str, dict[str, Any]]:
    return {
        path: schema
        for part in ("spec", "status")
        for path, schema, _ in crd_reference.fields(root(kind)["properties"][part], part)
    }


def leaves(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, field) for path, field in fields(kind).items() if "properties" not in field)


@pytest.mark.parametrize("kind", CRDS)
def test_every_field_has_a_description_that_is_a_sentence(kind: str) -> None:
    wrong = [
        path
        for path, field in fields(kind).items()
        if not field.get("description", "").endswith(".")
    ]

    assert not wrong


@pytest.mark.parametrize("kind", CRDS)
def test_every_default_is_named_once_in_the_description(kind: str) -> None:
    untold = [
        path
        for path, field in leaves(kind)
        if "default" in field
        and (
            f"Default {crd_reference.plain(field['default'])}." not in field["description"]
            or field["description"].count("Default ") > 1
        )
    ]

    assert not untold


@pytest.mark.parametrize("kind", CRDS)
def test_every_list_has_a_merge_strategy_and_a_maximum_length(kind: str) -> None:
    lists = [(path, field) for path, field in fields(kind).items() if field.get("type") == "array"]

    assert lists
    assert not [
        path
        for path, field in lists
        if "x-kubernetes-list-type" not in field or "maxItems" not in field
    ]


def test_no_field_of_a_spec_is_refused_with_a_regular_expression() -> None:
    """A `pattern` is named in the answer as it is; a rule has a message."""
    assert not [kind for kind in CRDS if "'pattern'" in str(root(kind)["properties"]["spec"])]


# Parts of a pod, which the API server checks when it takes the StatefulSet.
KUBERNETES_OWN = [
    "spec.env[].valueFrom",
    "spec.scheduling.affinity.nodeAffinity",
    "spec.scheduling.affinity.podAffinity",
    "spec.scheduling.affinity.podAntiAffinity",
    "spec.sidecars.containers[]",
    "spec.sidecars.containers[].ports[]",
    "spec.sidecars.containers[].volumeMounts[]",
    "spec.sidecars.volumes[]",
]


def open_parts(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The paths of the parts that accept unknown fields."""
    if "x-kubernetes-preserve-unknown-fields" in schema:
        yield path
    for name, part in schema.get("properties", {}).items():
        yield from open_parts(part, f"{path}.{name}".lstrip("."))
    for part in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            yield from open_parts(part, f"{path}[]")


@pytest.mark.parametrize("kind", CRDS)
def test_no_part_of_a_schema_but_kubernetes_own_accepts_unknown_fields(kind: str) -> None:
    allowed = KUBERNETES_OWN if kind == "DLedgerGroup" else []

    assert sorted(open_parts(root(kind), "")) == allowed


def test_the_defaults_of_a_group_match_the_nodes() -> None:
    group = fields("DLedgerGroup")

    assert group["spec.log.flushDiskType"]["default"] == NODE.flush_disk_type
    assert group["spec.log.segmentSize"]["default"] == f"{NODE.segment_size_bytes >> 30}Gi"
    assert group["spec.election.heartbeatInterval"]["default"] == f"{NODE.heartbeat_interval_ms}ms"
    assert group["spec.election.timeout"]["default"] == f"{NODE.election_timeout_ms // 1000}s"


def test_the_enums_of_the_schemas_match_the_formats() -> None:
    flush_disk_types = fields("DLedgerGroup")["spec.log.flushDiskType"]["enum"]
    verdicts = fields("DLedgerAudit")["status.verdict"]["enum"]

    group = fields("DLedgerGroup")
    assert set(flush_disk_types) == set(FlushDiskType)
    for path, words in (
        ("spec.log.onDamage", member_settings.ON_DAMAGE),
        ("spec.stateMachine.type", member_settings.STATE_MACHINES),
        ("spec.appendsToFollowers", member_settings.APPENDS_TO_FOLLOWERS),
        ("spec.logLevel", member_settings.LOG_LEVELS),
    ):
        assert group[path]["enum"] == list(words)
    assert set(verdicts) == set(Verdict)


def test_the_reference_page_is_current() -> None:
    page = crd_reference.PAGE.read_text()
    fresh = crd_reference.render(crd_reference.load(crd_reference.CRDS))
    changes = difflib.unified_diff(page.splitlines(), fresh.splitlines(), n=0, lineterm="")

    assert page == fresh, "run `python -m tools.crd_reference`:\n" + "\n".join(changes)
