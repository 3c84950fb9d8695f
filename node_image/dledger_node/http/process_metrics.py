"""Metrics of the process, which continue when the store is reopened."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_node.histogram import Histogram
from dledger_node.http import families
from dledger_node.http.auditors import Auditors, Lack
from dledger_node.traffic import Traffic


class LoopTimes(Protocol):
    """The times of the event loop."""

    @property
    def lag_s(self) -> Histogram:
        """Wall time by which timers fired late."""

    @property
    def turn_cpu_s(self) -> Histogram:
        """Processor time of each turn that was measured."""


class Recovery(Protocol):
    """The progress of the verification in the last opening of the store."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the log that the opening verifies."""

    @property
    def verified_bytes(self) -> int:
        """Bytes of the log that are verified so far."""


class Process(Protocol):
    """What the process measures, from its start on."""

    @property
    def loop_lag(self) -> LoopTimes:
        """The times of the event loop."""

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics of a program that is built on this member."""

    @property
    def traffic(self) -> Traffic:
        """The bytes of all connections."""

    @property
    def recovery(self) -> Recovery:
        """The last opening of the store."""


class LoopCollector(Collector):
    """Turns the times of the event loop into metric families."""

    def __init__(self, times: LoopTimes) -> None:
        self._times = times

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        lag_s, turn_cpu_s = self._times.lag_s, self._times.turn_cpu_s
        yield families.histogram("loop_lag_seconds", "Time by which timers fired late.", lag_s)
        yield families.histogram(
            "loop_turn_processor_seconds",
            "Processor time of the turns of the event loop; nearly empty ones are not counted.",
            turn_cpu_s,
        )
        yield GaugeMetricFamily(
            "dledger_node_loop_lag_longest_seconds",
            "The longest time by which a timer fired late, since the start.",
            value=lag_s.max,
        )
        yield GaugeMetricFamily(
            "dledger_node_loop_turn_processor_longest_seconds",
            "Processor time of the longest turn of the event loop, since the start.",
            value=turn_cpu_s.max,
        )


class ProcessCollector(Collector):
    """Turns the bytes of connections and the progress of openings into metric families."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        transferred = self._process.traffic.by_kind()
        yield families.counts(
            "received_bytes",
            "Bytes that this member received, by the kind of connection.",
            "kind",
            {kind: bytes_.received_bytes for kind, bytes_ in transferred.items()},
        )
        yield families.counts(
            "sent_bytes",
            "Bytes that this member sent, by the kind of connection.",
            "kind",
            {kind: bytes_.sent_bytes for kind, bytes_ in transferred.items()},
        )
        yield GaugeMetricFamily(
            "dledger_node_recovery_size_bytes",
            "Bytes of the log that the last opening of the store verifies.",
            value=self._process.recovery.size_bytes,
        )
        yield GaugeMetricFamily(
            "dledger_node_recovery_verified_bytes",
            "Bytes of the log that the last opening of the store has verified.",
            value=self._process.recovery.verified_bytes,
        )


class AuditorsCollector(Collector):
    """Turns the requests of auditors that were refused into a metric family."""

    def __init__(self, auditors: Auditors) -> None:
        self._auditors = auditors

    def collect(self) -> Iterable[Metric]:
        """Yield the family."""
        yield families.counts(
            "audit_requests_refused",
            "Requests for the log or the state without a valid audit token, by what is wrong.",
            "reason",
            {lack.value: self._auditors.refused[lack] for lack in Lack},
        )
