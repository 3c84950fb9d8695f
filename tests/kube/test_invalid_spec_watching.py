"""A mistake in the spec does not stop what watches the group."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_kube.objects import IMAGES, group_body
from dledger_operator.behaviors.audits.group_audits import GroupAudits
from dledger_operator.behaviors.group_snapshot import GroupSnapshot

WATCHING = ("audit", "broker", "canary")
WATCHED = {"audit": {"schedule": "0 3 * * *"}, "canary": {"interval": "7s"}, "broker": {}}
MISTAKE = {"log": "nonsense"}
PLAN = {"policy": "0 3 * * * UTC", "since": "2026-01-01T00:00:00Z"}


def watching(snapshot: GroupSnapshot) -> dict[str, Any]:
    return {key: getattr(snapshot.group, key) for key in WATCHING}


@pytest.mark.parametrize("gone", WATCHING)
def test_what_watches_a_group_stays_as_it_was_while_its_spec_is_invalid(gone: str) -> None:
    snapshot = GroupSnapshot.of(group_body(WATCHED), IMAGES)
    before = watching(snapshot)
    assert None not in before.values()

    for spec in ({**WATCHED, **MISTAKE}, {**WATCHED, gone: "nonsense"}, MISTAKE):
        snapshot.take_spec(group_body(spec), IMAGES)
        assert watching(snapshot) == before
    snapshot.take_spec(group_body({}), IMAGES)
    assert set(watching(snapshot).values()) == {None}


def test_an_operator_that_starts_with_an_invalid_spec_watches_by_what_is_valid_of_it() -> None:
    valid = watching(GroupSnapshot.of(group_body(WATCHED), IMAGES))
    wrong = {**WATCHED, "audit": "nonsense"}

    assert watching(GroupSnapshot.of(group_body({**WATCHED, **MISTAKE}), IMAGES)) == valid
    assert watching(GroupSnapshot.of(group_body(wrong), IMAGES)) == {**valid, "audit": None}


@pytest.mark.parametrize(
    ("spec", "stays"),
    [
        pytest.param({**WATCHED, "audit": "nonsense"}, True, id="invalid"),
        pytest.param({}, False, id="taken away"),
    ],
)
async def test_the_plan_of_audits_goes_only_with_a_valid_spec(
    spec: dict[str, Any], stays: bool
) -> None:
    body = group_body(spec) | {"status": {"auditPlan": PLAN}}
    snapshot, woken = GroupSnapshot.of(body, IMAGES), list[str]()
    context = cast("Any", SimpleNamespace())
    audits = GroupAudits(context, snapshot, lambda _: None, lambda *names: woken.extend(names))

    await audits.run_once()

    assert (snapshot.audits.plan is not None) is stays
    assert ("report" in woken) is not stays
