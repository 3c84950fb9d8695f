"""The node's metrics, read from the server when Prometheus asks and at no other time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_formats.status import FlushDiskType, NodeStatus, Role, StorageState


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the server counts, since its start."""

    appends_acknowledged: int
    appends_refused: int
    appends_unknown: int
    flushes: int
    pending_appends: int
    pending_bytes: int
    connections: int
    messages_refused: Mapping[str, int]
    """By cause: messages of peers that were not obeyed."""
    buffered_bytes: int
    connections_closed: Mapping[str, int]
    """By reason: those that this member refused or closed."""
    segments_removed: int
    segments_forced: int
    messages_dropped: Mapping[str, int]
    """By peer: what was not sent because the link was down or full."""


class Source(Protocol):
    """What the collector asks of the server."""

    def status(self) -> NodeStatus:
        """This member's view of the group."""

    def counters(self) -> Counters:
        """What was counted."""


_STATUS_GAUGES: Final = {
    "term": "Term of this member.",
    "ledger_begin_index": "First index that this member holds.",
    "ledger_end_index": "Last index that this member holds.",
    "committed_index": "Index up to which this member knows entries to be committed.",
    "durable_index": "Index up to which this member has flushed its log.",
}
_COUNTERS: Final = {
    "appends_acknowledged": "Appends answered with success.",
    "appends_refused": "Appends that were surely not stored.",
    "appends_unknown": "Appends whose outcome this member could not tell.",
    "flushes": "Flushes of the log to disk; many appends share one.",
    "segments_removed": "Segments that retention removed.",
    "segments_forced": "Those of them that a voter may have lacked, on a volume nearly full.",
}
_GAUGES: Final = {
    "pending_appends": "Appends that wait for their quorum.",
    "pending_bytes": "Bytes of the bodies that wait for their quorum.",
    "connections": "Open connections of clients and peers.",
    "buffered_bytes": "Bytes of unfinished frames and of answers that nobody has read yet.",
}


class NodeCollector(Collector):
    """Turns a status and counters into metric families."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        status, counters = self._source.status(), self._source.counters()
        for name, text in _STATUS_GAUGES.items():
            yield GaugeMetricFamily(f"dledger_node_{name}", text, value=getattr(status, name))
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"dledger_node_{name}", text, value=getattr(counters, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"dledger_node_{name}", text, value=getattr(counters, name))
        yield GaugeMetricFamily(
            "dledger_node_ready", "1 while this member serves its role.", value=float(status.ready)
        )
        role = GaugeMetricFamily(
            "dledger_node_role", "1 for this member's role, 0 for the others.", labels=["role"]
        )
        for each in Role:
            role.add_metric([each.value], float(status.role is each))
        yield role
        flush = GaugeMetricFamily(
            "dledger_node_flush_disk_type",
            "1 for when an append counts as held: SyncFlush on disk, AsyncFlush in memory.",
            labels=["type"],
        )
        for kind in FlushDiskType:
            flush.add_metric([kind.value], float(status.flush_disk_type is kind))
        yield flush
        closed = CounterMetricFamily(
            "dledger_node_connections_closed",
            "Connections that this member refused or closed, by the limit that they exceeded.",
            labels=["reason"],
        )
        for reason, count in counters.connections_closed.items():
            closed.add_metric([reason], count)
        yield closed
        storage = GaugeMetricFamily(
            "dledger_node_storage",
            "1 for the state of this member's volume, 0 for the others.",
            labels=["state"],
        )
        for state in StorageState:
            storage.add_metric([state.value], float(status.storage is state))
        yield storage
        dropped = CounterMetricFamily(
            "dledger_node_messages_dropped",
            "Messages to a peer that were not sent.",
            labels=["peer"],
        )
        for peer_id, count in counters.messages_dropped.items():
            dropped.add_metric([peer_id], count)
        yield dropped
        refused = CounterMetricFamily(
            "dledger_node_messages_refused",
            "Messages of peers that were not obeyed.",
            labels=["cause"],
        )
        for cause, count in counters.messages_refused.items():
            refused.add_metric([cause], count)
        yield refused


def registry(source: Source) -> CollectorRegistry:
    """Build a registry of this node's metrics alone."""
    made = CollectorRegistry(auto_describe=False)
    made.register(NodeCollector(source))
    return made
