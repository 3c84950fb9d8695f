"""The real pages of metrics follow the rules of `promtool check metrics`."""

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from dledger_group.metric_rules import complaints
from dledger_kube.objects import NOW, observed_group
from dledger_operator.conditions import of_group
from dledger_operator.metrics import OperatorMetrics
from tools.groups.broker_group import BrokerGroup
from tools.groups.node_group import NodeGroup


@pytest.mark.group
@pytest.mark.parametrize("kind", [NodeGroup, BrokerGroup])
def test_the_pages_of_members_break_no_rule(tmp_path: Path, kind: type[NodeGroup]) -> None:
    with kind(tmp_path) as group:
        group.master()
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ready, "is ready")
            page = group.get(member, "/metrics")[1]
            assert b"dledger_node_term " in page
            assert complaints(page) == []


def test_the_page_of_the_operator_breaks_no_rule() -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    observed = observed_group()
    metrics.update_group(observed, of_group.build(observed, previous=(), now=NOW, generation=1))
    page = generate_latest(metrics.registry)

    assert b"dledger_group_" in page
    assert complaints(page) == []


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("# TYPE x_total counter\nx_total 1\n", "no help text"),
        ("# HELP x Y.\n# TYPE x counter\nx 1\n", "does not end in _total"),
        ("# HELP x_ms Y.\n# TYPE x_ms gauge\nx_ms 1\n", "ms is not a base unit"),
        ("# HELP xY Y.\n# TYPE xY gauge\nxY 1\n", "not in snake case"),
        ("# HELP x_gauge Y.\n# TYPE x_gauge gauge\nx_gauge 1\n", "contains the type gauge"),
        ("# HELP x_count Y.\n# TYPE x_count gauge\nx_count 1\n", "like that of another type"),
        ('# HELP x Y.\n# TYPE x gauge\nx{aB="1"} 1\n', "label aB"),
        ('# HELP x Y.\n# TYPE x gauge\nx{le="1"} 1\n', "label le is reserved"),
        ("# HELP x Y.\nx 1\n", "no type"),
    ],
)
def test_a_page_that_breaks_a_rule_is_found(page: str, complaint: str) -> None:
    assert complaint in " ".join(complaints(page.encode()))
