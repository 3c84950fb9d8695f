"""The broker's metrics, and the page that lists them."""

import re
from pathlib import Path

from dledger_broker.metrics import BrokerCollector, BrokerCounters

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = r"^\| `(dledger_broker_[a-z_]+)(?:\{[a-z_, ]+\})?` \| (\w+) \| (.+) \|$"


def test_the_page_lists_every_metric_of_the_broker() -> None:
    families = list(BrokerCollector(BrokerCounters()).collect())

    rows = re.findall(ROW, PAGE.read_text(), re.MULTILINE)

    assert rows == sorted(
        (
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            family.documentation,
        )
        for family in families
    )
