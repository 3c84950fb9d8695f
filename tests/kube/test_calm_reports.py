"""How soon a group is reported again although nothing has changed."""

from typing import Any

import pytest

from dledger_kube.objects import NOW, member, observed_group
from dledger_operator.behaviors.report.group_reporter import is_calm
from dledger_operator.conditions import of_group
from dledger_operator.observed_state import ObservedEndpoints
from dledger_operator.problem import Problem


def calm(**fields: Any) -> bool:
    observed = observed_group(**fields)
    return is_calm(of_group.build(observed, previous=(), now=NOW, generation=1))


def test_nothing_is_under_way_in_a_healthy_group() -> None:
    assert calm()


@pytest.mark.parametrize(
    "fields",
    [
        {"leader": None},
        {"members": (member(0), member(1), member(2, ready=False, reason="is starting"))},
        {"problem": Problem(reason="InvalidSpec", message="no")},
        {"endpoints": ObservedEndpoints(synced=False, reason="Wrong", message="wrong")},
        {"replicas": 5},
    ],
    ids=["no-leader", "a-member-that-is-not-ready", "refused", "endpoints", "scaling"],
)
def test_a_group_in_which_something_is_under_way_is_reported_as_often_as_usual(
    fields: dict[str, Any],
) -> None:
    """Times that pass change its status: that of a grace period, or until a majority is missed."""
    assert not calm(**fields)
