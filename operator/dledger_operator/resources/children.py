"""Everything that a group consists of, in the order in which it is applied."""

from dledger_operator.resources import (
    client_service,
    config_map,
    headless_service,
    pod_disruption_budget,
    service_account,
    stateful_set,
)
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.views import Manifest


def build(group: Group, shape: Shape) -> list[Manifest]:
    """Build every child.

    The ServiceAccount and the settings come first, because pods cannot start without them; the
    headless Service before the pods, because they look each other up by it; the budget before the
    pods, so that no drain finds them without one. The StatefulSet is last.
    """
    return [
        service_account.build(group),
        config_map.build(group, shape),
        headless_service.build(group),
        client_service.build_master(group),
        client_service.build_slave(group),
        pod_disruption_budget.build(group, shape),
        stateful_set.build(group, shape),
    ]
