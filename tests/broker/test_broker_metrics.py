"""The broker's metrics, and the page that lists them."""

import re
from pathlib import Path

from dledger_broker.metrics import AnswerTimes, BrokerCollector, BrokerCounters

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


def test_requests_that_arrive_and_are_answered_together_are_counted_at_once() -> None:
    times = AnswerTimes()

    times.arrivals_s += [1.0, 1.0, 1.9]
    times.answered(2.0)
    times.arrivals_s.append(2.0)
    times.answered(2.5)

    assert times.seconds.count == 4
    assert times.seconds.sum == 1.0 + 1.0 + (2.0 - 1.9) + 0.5
    assert times.arrivals_s == []
