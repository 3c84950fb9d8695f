"""The node's Prometheus metrics, read from the server at each scrape."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
)
from prometheus_client.registry import Collector

from dledger_formats.http.status import NodeStatus
from dledger_node.histogram import Histogram
from dledger_node.http import families
from dledger_node.http.auditors import Auditors
from dledger_node.http.process_metrics import (
    AuditorsCollector,
    LoopCollector,
    Process,
    ProcessCollector,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counters and gauges of the server, since its start."""

    appends_acknowledged: int
    appends_refused: int
    appends_unknown: int
    appends_repeated: int
    appends_passed_on: int
    producers: int
    append_s: Histogram
    """Time from the proposal of acknowledged appends to their answers."""
    flush_s: Histogram
    """Time that flushes took."""
    leader_changes: int
    pending_appends: int
    pending_bytes: int
    applied_index: int
    """Last entry applied to the state machine; -1 without one."""
    snapshot_index: int
    """Last entry that the newest snapshot includes; -1 without a snapshot."""
    snapshots_installed: int
    snapshots_without_room: int
    connections: int
    elections: Mapping[str, int]
    """Elections that this member began, by cause."""
    messages_refused: Mapping[str, int]
    """Rejected messages of peers, by cause."""
    buffered_bytes: int
    connections_closed: Mapping[str, int]
    """Connections that this member refused or closed, by reason."""
    admin_requests_refused: Mapping[str, int]
    """Membership changes and transfers that lacked the administration token, by what was wrong."""
    segments_removed: int
    segments_forced: int
    healed_ranges: int
    healed_entries: int
    mended_ranges: int
    mended_entries: int
    mended_bytes: int
    unmended: bool
    """Whether damage was found that is not mended yet."""
    mending_failures: int
    unmended_removed: int
    scrub_passes: int
    scrubbed_bytes: int
    scrub_position_bytes: int
    healing_missing_entries: int
    messages_dropped: Mapping[str, int]
    """Messages that were not sent because the link was down or full, by peer."""
    links_up: Mapping[str, bool]
    """Whether the link to each peer is up, by peer."""
    peer_lag_entries: Mapping[str, int]
    """Number of entries that each peer does not hold durably, as far as this leader knows, by peer;
    empty on members that do not lead.
    """
    volume_size_bytes: int
    volume_available_bytes: int
    """Free bytes; 0, like the size, until the first check of the volume."""


class Source(Protocol):
    """The data that the collector reads."""

    def status(self) -> NodeStatus:
        """Return this member's view of the group."""

    def counters(self) -> Counters:
        """Return the current counters."""


_STATUS_GAUGES: Final = {
    "term": "Current term of this member.",
    "ledger_begin_index": "Index of the first entry in this member's log.",
    "ledger_end_index": "Index of the last entry in this member's log.",
    "committed_index": "Committed index, as far as this member knows.",
    "durable_index": "Index up to which this member has flushed its log.",
    "ready": "1 while this member serves its role.",
    "joining": "1 while this member is joining: it lost data and does not vote yet.",
    "membership_index": "Index of the entry that set the membership; -1 for the first voters.",
}
_COUNTERS: Final = {
    "appends_acknowledged": "Appends that were acknowledged.",
    "appends_refused": "Appends that were refused and not stored.",
    "appends_unknown": "Appends with an unknown outcome.",
    "appends_repeated": "Repeated appends that were answered with the index of the first copy.",
    "appends_passed_on": "Appends that were passed on to the leader; it counts their outcomes.",
    "leader_changes": "Leaders of different terms that this member has known.",
    "snapshots_installed": "Snapshots of the state that were installed from other members.",
    "snapshots_without_room": "Attempts to save or fetch a snapshot that found no room.",
    "segments_removed": "Segments that retention removed.",
    "segments_forced": "Removed segments that a voter may have lacked, on a nearly full volume.",
    "healed_ranges": "Damaged parts of the log, or lost votes, that this member recovered from.",
    "healed_entries": "Damaged entries that were re-fetched from a leader.",
    "mended_ranges": "Damaged ranges of the log that were mended in place from a peer.",
    "mended_entries": "Damaged entries that were mended in place.",
    "mended_bytes": "Bytes of the log that were mended in place.",
    "mending_failures": "Attempts to mend damage in place that failed; `/status` says why.",
    "unmended_removed": "Damaged entries that retention removed unmended.",
    "scrub_passes": "How often the whole log has been read to find rot.",
    "scrubbed_bytes": "Bytes of the log that were read to find rot.",
}
_GAUGES: Final = {
    "scrub_position_bytes": "Position up to which the log was read for rot; 0 between two passes.",
    "unmended": "1 while this member in service has found damage that is not mended yet.",
    "healing_missing_entries": "Damaged entries that have not been re-fetched yet.",
    "pending_appends": "Appends that wait for a quorum.",
    "pending_bytes": "Bytes of the bodies that wait for a quorum.",
    "producers": "Producers of idempotent appends that this member remembers.",
    "applied_index": "Index up to which the state machine has applied entries; -1 without one.",
    "snapshot_index": "Last index that the newest snapshot of the state includes; -1 without one.",
    "volume_size_bytes": "Size of the volume that holds the log.",
    "volume_available_bytes": "Bytes of that volume that are still available.",
    "connections": "Open connections of clients and peers.",
    "buffered_bytes": "Bytes of incomplete frames and of responses that have not been read yet.",
}


class NodeCollector(Collector):
    """Turns a status and counters into metric families."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        status, counters = self._source.status(), self._source.counters()
        yield from _numbers(status, counters)
        yield from _states(status)
        yield from _labelled(status, counters)
        yield families.histogram(
            "append_seconds",
            "Time from the proposal of an acknowledged append to its answer.",
            counters.append_s,
        )
        yield families.histogram("flush_seconds", "Time of a flush of the log.", counters.flush_s)


def _numbers(status: NodeStatus, counters: Counters) -> Iterator[Metric]:
    """Yield the families without labels."""
    for name, text in _STATUS_GAUGES.items():
        yield GaugeMetricFamily(f"dledger_node_{name}", text, value=float(getattr(status, name)))
    for name, text in _GAUGES.items():
        yield GaugeMetricFamily(f"dledger_node_{name}", text, value=getattr(counters, name))
    for name, text in _COUNTERS.items():
        yield CounterMetricFamily(f"dledger_node_{name}", text, value=getattr(counters, name))
    yield CounterMetricFamily(
        "dledger_node_flushes",
        "Flushes of the log to disk; many appends share one.",
        value=counters.flush_s.count,
    )


def _states(status: NodeStatus) -> Iterator[Metric]:
    """Yield the families with one sample for each possible state."""
    yield families.state("role", "1 for this member's role, 0 for the others.", "role", status.role)
    yield families.state(
        "membership",
        "1 for this member's membership in its group, by its own log; 0 for the others.",
        "membership",
        status.membership,
    )
    yield families.state(
        "flush_disk_type",
        "1 for the flush mode. Entries count as held on disk (SyncFlush) or in memory "
        "(AsyncFlush).",
        "type",
        status.flush_disk_type,
    )
    yield families.state(
        "storage",
        "1 for the state of this member's volume, 0 for the others.",
        "state",
        status.storage,
    )


def _labelled(status: NodeStatus, counters: Counters) -> Iterator[Metric]:
    """Yield the families with a sample for each peer, reason or kind."""
    members = GaugeMetricFamily(
        "dledger_node_members", "Members of the group, by this member's log.", labels=["kind"]
    )
    members.add_metric(["voter"], len(status.voters))
    members.add_metric(["learner"], len(status.learners))
    yield members
    yield families.by_peer(
        "peer_link_up", "1 while the link to a peer is up, else 0.", counters.links_up
    )
    yield families.by_peer(
        "peer_lag_entries",
        "Entries of this leader's log that a peer does not hold durably yet.",
        counters.peer_lag_entries,
    )
    yield families.by_peer(
        "peer_full",
        "1 while a peer reports to this leader that its volume is full, else 0.",
        {peer.peer_id: peer.full for peer in status.followers},
    )
    yield families.counts(
        "messages_dropped",
        "Messages to a peer that were not sent.",
        "peer",
        counters.messages_dropped,
    )
    yield families.counts(
        "elections",
        "Elections that this member began, by cause.",
        "cause",
        counters.elections,
    )
    yield families.counts(
        "messages_refused",
        "Messages of peers that were rejected.",
        "cause",
        counters.messages_refused,
    )
    yield families.counts(
        "connections_closed",
        "Connections that this member refused or closed, by the exceeded limit.",
        "reason",
        counters.connections_closed,
    )
    yield families.counts(
        "admin_requests_refused",
        "Membership changes and transfers without a valid administration token, by what is wrong.",
        "reason",
        counters.admin_requests_refused,
    )


def registry(
    source: Source, process: Process, auditors: Auditors | None = None
) -> CollectorRegistry:
    """Build a registry of this node's metrics only."""
    made = CollectorRegistry(auto_describe=False)
    made.register(NodeCollector(source))
    made.register(LoopCollector(process.loop_lag))
    made.register(ProcessCollector(process))
    if auditors is not None:
        made.register(AuditorsCollector(auditors))
    for collector in process.collectors:
        made.register(collector)
    return made
