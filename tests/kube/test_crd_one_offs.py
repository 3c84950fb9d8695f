"""The CRDs whose objects are carried out once, on a real API server: rules, storage, columns."""

import re
from pathlib import Path

import pytest
import yaml

from api_server.client import ApiServer, RefusedError
from api_server.objects import MERGE_PATCH, Object, audit, check, check_change, path, stored
from api_server.one_off_kinds import KINDS, OneOffKind

pytest_plugins = ["api_server.fixtures"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@every_kind
def test_missing_fields_get_their_defaults(api_server: ApiServer, kind: OneOffKind) -> None:
    assert check(api_server, kind.make())["spec"] == kind.defaults


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.example])
def test_the_example_is_accepted(api_server: ApiServer, kind: OneOffKind) -> None:
    sent = yaml.safe_load((EXAMPLES / kind.example).read_text())
    sent["metadata"]["namespace"] = "default"

    assert check(api_server, sent)["spec"] == kind.defaults


@pytest.mark.parametrize(
    ("kind", "spec", "answer"),
    [
        pytest.param(kind, *case, id=f"{name}: {what}")
        for name, kind in KINDS.items()
        for what, case in kind.refused.items()
    ],
)
def test_an_invalid_spec_is_refused_with_the_reason(
    api_server: ApiServer, kind: OneOffKind, spec: Object, answer: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(answer)):
        check(api_server, kind.make(**spec))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("a" * 53, "the name must not exceed 52 characters"),
        ("1-audit", "the name becomes part of the Job's name"),
    ],
)
def test_an_invalid_job_name_is_refused(api_server: ApiServer, name: str, answer: str) -> None:
    with pytest.raises(RefusedError, match=answer):
        check(api_server, audit(name))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(kind, change, id=f"{name}: {', '.join(change)}")
        for name, kind in KINDS.items()
        for change in kind.changes
    ],
)
def test_the_spec_is_immutable(api_server: ApiServer, kind: OneOffKind, change: Object) -> None:
    with (
        stored(api_server, kind.make()) as made,
        pytest.raises(RefusedError, match=kind.immutable),
    ):
        check_change(api_server, made, {"spec": change})


@every_kind
def test_the_same_object_may_be_applied_again(api_server: ApiServer, kind: OneOffKind) -> None:
    with stored(api_server, kind.make()) as made:
        assert check_change(api_server, made, {"spec": kind.defaults})["spec"] == made["spec"]


def with_status(server: ApiServer, kind: OneOffKind, made: Object) -> Object:
    kept: Object = server.request(
        "PATCH",
        f"{path(made)}/status?fieldValidation=Strict",
        {"status": kind.status},
        content_type=MERGE_PATCH,
    )
    return kept


@every_kind
def test_a_complete_status_is_stored_as_it_was_written(
    api_server: ApiServer, kind: OneOffKind
) -> None:
    with stored(api_server, kind.make()) as made:
        assert with_status(api_server, kind, made)["status"] == kind.status


@every_kind
def test_the_table_shows_what_it_is_about_and_how_it_ended(
    api_server: ApiServer, kind: OneOffKind
) -> None:
    with stored(api_server, kind.make()) as made:
        with_status(api_server, kind, made)
        name = made["metadata"]["name"]
        header, row = api_server.kubectl("get", kind.short_name, name).splitlines()

    assert header.split() == ["NAME", *kind.columns, "AGE"]
    assert row.split()[:-1] == [name, *kind.columns.values()]
