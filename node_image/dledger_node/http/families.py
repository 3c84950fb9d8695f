"""Builds metric families of this member from values."""

import enum
from collections.abc import Mapping

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from dledger_node.histogram import Histogram


def state(name: str, text: str, label: str, present: enum.Enum) -> Metric:
    """Build a gauge with a sample for each value of the enum: 1 for `present`, 0 for the others."""
    family = GaugeMetricFamily(f"dledger_node_{name}", text, labels=[label])
    for each in type(present):
        family.add_metric([each.value], float(each is present))
    return family


def counts(name: str, text: str, label: str, counted: Mapping[str, int]) -> Metric:
    """Build a counter with a sample for each key."""
    family = CounterMetricFamily(f"dledger_node_{name}", text, labels=[label])
    for key, count in counted.items():
        family.add_metric([key], count)
    return family


def by_peer(name: str, text: str, values: Mapping[str, int]) -> Metric:
    """Build a gauge with a sample for each peer."""
    family = GaugeMetricFamily(f"dledger_node_{name}", text, labels=["peer"])
    for peer_id, value in values.items():
        family.add_metric([peer_id], float(value))
    return family


def histogram(name: str, text: str, observed: Histogram, prefix: str = "dledger_node") -> Metric:
    """Build a histogram."""
    bounds = [*map(str, observed.bounds), "+Inf"]
    buckets = list(zip(bounds, map(float, observed.cumulative()), strict=True))
    return HistogramMetricFamily(f"{prefix}_{name}", text, buckets=buckets, sum_value=observed.sum)
