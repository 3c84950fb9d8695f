"""The ConfigMap with the settings that all members share, as environment variables."""

import hashlib
from typing import Final

from dledger_formats.settings import variable_name
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import child
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

# The settings that a group determines. All others keep the node's defaults.
_SETTINGS: Final = (
    "group", "peers", "addable_peers", "initial_group_state", "store_base_dir",
    "heartbeat_interval_ms", "election_timeout_ms", "flush_disk_type", "segment_size_bytes",
    "index_segment_size_bytes", "log_format",
)  # fmt: skip
PEERS_KEY: Final = variable_name("peers")
STATE_KEY: Final = variable_name("initial_group_state")


def build(group: Group, shape: Shape) -> Manifest:
    """Build the ConfigMap. A container reads it at each start."""
    manifest = child(group, "ConfigMap", "v1", names.settings_config_map(group.name))
    return manifest | {"data": environment(group, shape)}


def environment(group: Group, shape: Shape) -> dict[str, str]:
    """Return the environment variables that all members share."""
    every = group.node_settings(shape).to_environment()
    return {variable: every[variable] for variable in map(variable_name, _SETTINGS)}


def config_hash(group: Group, shape: Shape) -> str:
    """Return a short digest of the settings. A pod with another digest runs with older settings.

    The initial group state is left out: a member ignores it once the group is founded.
    """
    settings = sorted(environment(group, shape).items())
    text = "\n".join(f"{name}={value}" for name, value in settings if name != STATE_KEY)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
