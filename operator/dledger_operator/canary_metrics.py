"""The metrics of canaries: whether groups take appends through their master Services."""

import contextlib
import enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_GROUP: Final = ("namespace", "group")
BUCKETS_S: Final = (
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0,
)  # fmt: skip


class Operation(enum.StrEnum):
    """What a canary does."""

    APPEND = "append"
    READ = "read"


class Outcome(enum.StrEnum):
    """How a test ended."""

    ACKNOWLEDGED = "acknowledged"
    """The canary was acknowledged and read back, and the one before it is still there."""
    NOT_ACKNOWLEDGED = "not_acknowledged"
    NOT_READ = "not_read"
    LOST = "lost"
    """An acknowledged canary is no longer in the log."""
    UNSUPPORTED = "unsupported"
    """The leader's release does not support canaries, which says nothing about the group."""


class CanaryMetrics:
    """The metrics of all groups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tests = Counter(
            "dledger_canary_tests",
            "Tests with a canary by outcome; only outcome=acknowledged is a success.",
            [*_GROUP, "outcome"],
            registry=registry,
        )
        self.available = Gauge(
            "dledger_canary_available",
            "1 if the last canary was acknowledged and read back, 0 if not.",
            _GROUP,
            registry=registry,
        )
        self.seconds = Histogram(
            "dledger_canary_seconds",
            "Time of a successful append or read of a canary, repetitions included.",
            [*_GROUP, "operation"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.lost = Counter(
            "dledger_canary_lost_acknowledgements",
            "Canaries that were acknowledged and are not in the log any more. Must stay 0.",
            _GROUP,
            registry=registry,
        )

    def of(self, namespace: str, group: str) -> "GroupCanaryMetrics":
        """Return the metrics of one group."""
        return GroupCanaryMetrics(self, namespace, group)

    def remove_group(self, namespace: str, group: str) -> None:
        """Drop all series of a group."""
        for metric, values in (
            (self.tests, Outcome), (self.seconds, Operation),
        ):  # fmt: skip
            for value in values:
                with contextlib.suppress(KeyError):
                    metric.remove(namespace, group, value)
        for one in (self.available, self.lost):
            with contextlib.suppress(KeyError):
                one.remove(namespace, group)


class GroupCanaryMetrics:
    """The metrics of one group."""

    def __init__(self, metrics: CanaryMetrics, namespace: str, group: str) -> None:
        self._metrics = metrics
        self._key = (namespace, group)

    def count(self, outcome: Outcome) -> None:
        """Count a test."""
        self._metrics.tests.labels(*self._key, outcome).inc()
        self._metrics.lost.labels(*self._key)  # a series at 0 can be watched
        if outcome is Outcome.UNSUPPORTED:
            self.forget_availability()
        else:
            self._metrics.available.labels(*self._key).set(outcome is Outcome.ACKNOWLEDGED)

    def observe(self, operation: Operation, seconds: float) -> None:
        """Record how long a successful append or read took."""
        self._metrics.seconds.labels(*self._key, operation).observe(seconds)

    def count_lost(self) -> None:
        """Count an acknowledged canary that is gone."""
        self._metrics.lost.labels(*self._key).inc()

    def forget_availability(self) -> None:
        """Drop the result of the last test, which no longer says anything about the group."""
        with contextlib.suppress(KeyError):
            self._metrics.available.remove(*self._key)

    def forget(self) -> None:
        """Drop the series of the group, which is no longer tested."""
        self._metrics.remove_group(*self._key)
