"""The node's metrics, read from the server when Prometheus asks and at no other time."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_formats.http.status import NodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the server counts, since its start."""

    appends_acknowledged: int
    appends_refused: int
    appends_unknown: int
    appends_repeated: int
    producers: int
    flushes: int
    pending_appends: int
    pending_bytes: int
    applied_index: int
    """-1 without a state machine; as is the next."""
    snapshot_index: int
    snapshots_installed: int
    connections: int
    messages_refused: Mapping[str, int]
    """By cause: messages of peers that were not obeyed."""
    buffered_bytes: int
    connections_closed: Mapping[str, int]
    """By reason: those that this member refused or closed."""
    segments_removed: int
    segments_forced: int
    healed_ranges: int
    healed_entries: int
    healing_missing_entries: int
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
    "membership_index": "Entry that says who belongs to the group; -1 for the first voters.",
}
_COUNTERS: Final = {
    "appends_acknowledged": "Appends answered with success.",
    "appends_refused": "Appends that were surely not stored.",
    "appends_unknown": "Appends whose outcome this member could not tell.",
    "appends_repeated": "Copies of appends that were answered with the first one's place.",
    "flushes": "Flushes of the log to disk; many appends share one.",
    "snapshots_installed": "Snapshots of the state that came from other members.",
    "segments_removed": "Segments that retention removed.",
    "segments_forced": "Those of them that a voter may have lacked, on a volume nearly full.",
    "healed_ranges": "Damaged parts of the log, or lost votes, that this member recovered from.",
    "healed_entries": "Entries that were taken again from a leader, since they were damaged here.",
}
_GAUGES: Final = {
    "healing_missing_entries": "Entries that were damaged and have not been taken again yet.",
    "pending_appends": "Appends that wait for their quorum.",
    "pending_bytes": "Bytes of the bodies that wait for their quorum.",
    "producers": "Producers that this member remembers, whose appends may be sent again.",
    "applied_index": "Index up to which entries were applied to the state machine; -1 without one.",
    "snapshot_index": "Last index that the newest snapshot of the state includes; -1 without one.",
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
        yield GaugeMetricFamily(
            "dledger_node_joining",
            "1 while this member, which came up without all that it had, does not vote yet.",
            value=float(status.joining),
        )
        yield _state("role", "1 for this member's role, 0 for the others.", "role", status.role)
        yield _state(
            "membership",
            "1 for what this member is to its group, by its own log; 0 for the others.",
            "membership",
            status.membership,
        )
        members = GaugeMetricFamily(
            "dledger_node_members", "Members of the group, by this member's log.", labels=["kind"]
        )
        members.add_metric(["voter"], len(status.voters))
        members.add_metric(["learner"], len(status.learners))
        yield members
        yield _state(
            "flush_disk_type",
            "1 for when an append counts as held: SyncFlush on disk, AsyncFlush in memory.",
            "type",
            status.flush_disk_type,
        )
        yield _counts(
            "connections_closed",
            "Connections that this member refused or closed, by the limit that they exceeded.",
            "reason",
            counters.connections_closed,
        )
        yield _state(
            "storage",
            "1 for the state of this member's volume, 0 for the others.",
            "state",
            status.storage,
        )
        yield _counts(
            "messages_dropped",
            "Messages to a peer that were not sent.",
            "peer",
            counters.messages_dropped,
        )
        yield _counts(
            "messages_refused",
            "Messages of peers that were not obeyed.",
            "cause",
            counters.messages_refused,
        )


def _state(name: str, text: str, label: str, present: enum.Enum) -> Metric:
    """A gauge for each value that this one could have; 1 for the one that it has."""
    family = GaugeMetricFamily(f"dledger_node_{name}", text, labels=[label])
    for each in type(present):
        family.add_metric([each.value], float(each is present))
    return family


def _counts(name: str, text: str, label: str, counted: Mapping[str, int]) -> Metric:
    """A counter for each key."""
    family = CounterMetricFamily(f"dledger_node_{name}", text, labels=[label])
    for key, count in counted.items():
        family.add_metric([key], count)
    return family


def registry(source: Source) -> CollectorRegistry:
    """Build a registry of this node's metrics alone."""
    made = CollectorRegistry(auto_describe=False)
    made.register(NodeCollector(source))
    return made
