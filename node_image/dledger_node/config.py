"""The node's settings, turned into what its parts are built from."""

from pathlib import Path
from typing import Final

from dledger_formats.http.status import FlushDiskType
from dledger_formats.settings import GroupState, NodeSettings
from dledger_node.raft.config import RaftConfig

# Coarser ticks make two followers stand at the same moment more often; finer ones only cost wake-
# ups.
TICK_MS: Final = 10


def raft_config(settings: NodeSettings) -> RaftConfig:
    """The core's configuration, in ticks of `TICK_MS`."""
    return RaftConfig(
        self_id=settings.self_id,
        voters=tuple(sorted(settings.peers)),
        addable_ids=tuple(sorted(settings.addable_peers)),
        new_group=settings.initial_group_state is GroupState.NEW,
        heartbeat_ticks=max(1, settings.heartbeat_interval_ms // TICK_MS),
        election_ticks=max(2, settings.election_timeout_ms // TICK_MS),
        recall_ticks=max(2, settings.election_timeout_ms // TICK_MS),
        sync_flush=settings.flush_disk_type is FlushDiskType.SYNC_FLUSH,
    )


def store_folder(settings: NodeSettings) -> Path:
    """Where a member keeps its files: in a folder named as DLedger names it."""
    return Path(settings.store_base_dir) / f"dledger-{settings.self_id}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, which `NodeSettings` has checked."""
    host, _, port = address.rpartition(":")
    return host, int(port)
