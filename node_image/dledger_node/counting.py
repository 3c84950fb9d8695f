"""What a member has counted, gathered from its parts when Prometheus asks."""

from collections.abc import Mapping

from dledger_node.appends import Appends
from dledger_node.group_commit import GroupCommit
from dledger_node.http.metrics import Counters
from dledger_node.raft.core import Raft
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.peer_link import PeerLink
from dledger_node.state_keeper import State
from dledger_node.storage_upkeep import StorageUpkeep
from dledger_node.store.mmap_store import MmapStore


def counters(
    core: Raft,
    store: MmapStore,
    appends: Appends,
    group_commit: GroupCommit,
    upkeep: StorageUpkeep,
    state: State,
    gate: Gate,
    links: Mapping[str, PeerLink],
) -> Counters:
    """Everything since the start."""
    return Counters(
        appends_acknowledged=appends.acknowledged,
        appends_refused=appends.refused,
        appends_unknown=appends.unknown,
        appends_repeated=appends.once.repeated,
        producers=len(store.producers.table),
        flushes=group_commit.flushes,
        pending_appends=appends.pending.count,
        pending_bytes=appends.pending.body_bytes,
        applied_index=state.applied_index,
        snapshot_index=state.snapshot_index,
        snapshots_installed=state.snapshots_installed,
        segments_removed=upkeep.segments_removed,
        segments_forced=upkeep.segments_forced,
        messages_refused={cause.value: count for cause, count in core.refusals.items()},
        connections=gate.connections,
        buffered_bytes=gate.received_bytes + gate.unsent_bytes,
        connections_closed=gate.closed_by_reason,
        messages_dropped={peer_id: link.dropped for peer_id, link in links.items()},
    )
