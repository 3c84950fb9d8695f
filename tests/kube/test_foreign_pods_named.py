"""Pods that carry a group's label but are not its own are named in `Degraded`, whatever else is."""

from typing import Any

import pytest

from dledger_formats.audit import Verdict
from dledger_kube.objects import NOW, member, observed_group
from dledger_operator.conditions import degraded
from dledger_operator.conditions.condition import MESSAGE_LENGTH_MAX, stamped
from dledger_operator.observed_state import AuditFinding
from dledger_operator.problem import Problem

DAMAGED = AuditFinding(
    audit="monthly", verdict=Verdict.DAMAGED, message="entry 7 is damaged", started_at=NOW
)


def absent(reason: str) -> dict[str, Any]:
    """Return the members of a group whose n2 is not ready."""
    return {"members": (member(0), member(1), member(2, ready=False, reason=reason, status=None))}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("True", "ForeignPods")),
        ({"audit": DAMAGED}, ("True", "AuditDamaged")),
        (absent("no answer"), ("True", "MemberNotReady")),
        (absent("very long " * MESSAGE_LENGTH_MAX), ("True", "MemberNotReady")),
        ({"warning": Problem(reason="Stalled", message="a quota")}, ("True", "Stalled")),
        ({"starting": True, **absent("starting")}, ("True", "ForeignPods")),
        ({"hibernate": True, "pods_known": True, "members": ()}, ("False", "Hibernated")),
    ],
)
def test_foreign_pods_are_named_beside_every_other_cause(
    fields: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = degraded.judge(observed_group(foreign_pods=["web-0", "web-1"], **fields))
    shown = stamped("Degraded", found, previous=None, now=NOW, generation=1)

    assert (shown["status"], shown["reason"]) == expected
    assert "web-0, web-1; " in shown["message"]
    assert shown["message"].endswith("remove the label from these pods")


def test_only_the_first_foreign_pods_are_named_and_the_cause_is_never_cut_away() -> None:
    names = ["w" * 253] * 9

    found = degraded.judge(observed_group(foreign_pods=names, **absent("no answer")))

    assert found.message.startswith("flights-2: no answer; ")
    assert len(found.message) <= MESSAGE_LENGTH_MAX


def test_a_group_without_foreign_pods_names_none() -> None:
    assert degraded.judge(observed_group(**absent("no answer"))).message == "flights-2: no answer"
