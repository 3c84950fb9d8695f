"""Wrong DLedgerGroups, and what a real API server answers to them."""

import difflib
import re

import pytest

from api_server.client import ApiServer
from api_server.objects import Object, check_change, group, stored
from dledger_kube.wrong_specs import page
from tools import crd_reference

pytest_plugins = ["api_server.fixtures"]

WRONG_SPECS_MIN = 90


@pytest.fixture(scope="module")
def answers(api_server: ApiServer, request: pytest.FixtureRequest) -> str:
    """The page as the server answers now."""
    fresh = page.render(api_server)
    if request.config.getoption("--write-pages"):
        page.PAGE.write_text(fresh)
    return fresh


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and "`" in line]


def test_the_page_shows_what_the_server_answers(answers: str) -> None:
    known = page.PAGE.read_text()
    changes = difflib.unified_diff(known.splitlines(), answers.splitlines(), n=0, lineterm="")

    assert known == answers, "run this file with --write-pages:\n" + "\n".join(changes)


def test_no_wrong_spec_is_accepted(answers: str) -> None:
    assert len(rows(answers)) >= WRONG_SPECS_MIN
    assert not [row for row in rows(answers) if row.endswith(f"| {page.ACCEPTED} |")]


def test_every_answer_is_a_sentence_and_not_an_expression(answers: str) -> None:
    expressions = re.compile(r"should match|evaluating rule|type conversion|no such overload")

    assert not [row for row in rows(answers) if expressions.search(row)]


def test_every_rule_of_the_schema_is_violated_by_one_wrong_spec(answers: str) -> None:
    crd = next(
        crd
        for crd in crd_reference.load(crd_reference.CRDS)
        if crd["spec"]["names"]["kind"] == "DLedgerGroup"
    )
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    untested = [
        (where, text)
        for where, text in crd_reference.rules(schema, "")
        if not re.search(re.escape(text).replace(r"\.\.\.", ".+"), answers)
    ]

    assert not untested


@pytest.mark.parametrize(
    "change",
    [
        {"storage": {"size": "31Gi", "retain": {"whenDeleted": "Delete"}}},
        {"log": {"segmentSize": "1024Mi"}},
        {"log": {"flushDiskType": "AsyncFlush"}},
        {"election": {"heartbeatInterval": "100ms", "timeout": "500ms"}},
        {"paused": True},
    ],
    ids=["a larger volume", "the same size in other units", "the flush type", "times", "a pause"],
)
def test_a_change_of_a_mutable_field_is_accepted(api_server: ApiServer, change: Object) -> None:
    with stored(api_server, group()) as made:
        changed = check_change(api_server, made, {"spec": change})["spec"]

    assert changed != made["spec"]
