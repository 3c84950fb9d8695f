"""The group that most benchmarks measure: three members with the default timers."""

from pathlib import Path
from typing import Any, Final

from tools.groups.node_group import NodeGroup

SETTINGS: Final[dict[str, Any]] = {
    "heartbeat_interval_ms": 250,
    "election_timeout_ms": 1000,
    "segment_size_bytes": 256 << 20,
    "index_segment_size_bytes": 40 << 20,
}


def measured_group(folder: Path, **settings: object) -> NodeGroup:
    """Return a group of three members; `settings` override fields of `NodeSettings`.

    The settings of `NodeGroup` itself suit tests: its timers are short and its segments small.
    """
    return NodeGroup(folder, **{**SETTINGS, **settings})
