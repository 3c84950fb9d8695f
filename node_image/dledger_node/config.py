"""Derive the configuration of the node's parts from its settings."""

from pathlib import Path
from typing import Final

from dledger_formats.http.status import FlushDiskType
from dledger_formats.peers import split_address
from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_formats.protocol.membership_change import PROMOTION_LAG_ENTRIES_MAX
from dledger_formats.settings import ARCHIVE, GroupState, NodeSettings
from dledger_node.raft.config import RaftConfig

# With coarser ticks two followers campaign at the same moment more often; finer ones cost wake-ups.
TICK_MS: Final = 10
# Above 200 appends a second, the next push reports the committed index soon enough.
NOTICES_PER_TICK_MAX: Final = 2


def raft_config(settings: NodeSettings) -> RaftConfig:
    """Return the core's configuration, in ticks of `TICK_MS`."""
    return RaftConfig(
        self_id=settings.self_id,
        voters=tuple(sorted(settings.peers)),
        addable_ids=tuple(sorted(settings.addable_peers)),
        new_group=settings.initial_group_state is GroupState.NEW,
        needs_seed=settings.first_log == ARCHIVE,
        heartbeat_ticks=max(1, settings.heartbeat_interval_ms // TICK_MS),
        election_ticks=max(2, settings.election_timeout_ms // TICK_MS),
        notices_per_tick_max=NOTICES_PER_TICK_MAX,
        recall_ticks=max(2, settings.election_timeout_ms // TICK_MS),
        confirms_unflushed=settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH,
        transfer_lag_entries_max=TRANSFER_LAG_ENTRIES_MAX,
        promotion_lag_entries_max=PROMOTION_LAG_ENTRIES_MAX,
    )


def store_folder(settings: NodeSettings) -> Path:
    """Return the folder of a member's files, named as in DLedger."""
    return Path(settings.store_base_dir) / f"dledger-{settings.self_id}"


def join_address(host: str, port: int) -> str:
    """Return a host and a port as one text; an empty host, for all addresses, becomes `*`."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def peer_hosts(settings: NodeSettings) -> frozenset[str]:
    """Return the hosts of the other members' pages."""
    others = settings.known_peers.keys() - {settings.self_id}
    return frozenset(split_address(settings.http_address_of(each))[0] for each in others)
