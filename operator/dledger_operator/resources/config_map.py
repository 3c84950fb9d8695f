"""The members' settings, as the environment that they read."""

import hashlib
from typing import Final

from dledger_formats.settings import variable_name
from dledger_operator import names
from dledger_operator.group import Group
from dledger_operator.resources.metadata import child
from dledger_operator.views import Manifest

# What every member shares and a group chooses. The rest keeps the node's own defaults: an older
# image must not be given a variable that it does not know, because it refuses such.
_SETTINGS: Final = (
    "group", "peers", "store_base_dir", "heartbeat_interval_ms", "election_timeout_ms",
    "flush_disk_type", "segment_size_bytes", "index_segment_size_bytes", "log_format",
)  # fmt: skip


def build(group: Group) -> Manifest:
    """Build it."""
    manifest = child(group, "ConfigMap", "v1", names.settings_config_map(group.name))
    return manifest | {"data": environment(group)}


def environment(group: Group) -> dict[str, str]:
    """The variables that all members share."""
    every = group.node_settings().to_environment()
    return {variable: every[variable] for variable in map(variable_name, _SETTINGS)}


def config_hash(group: Group) -> str:
    """A short digest: pods with another one run with older settings."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(environment(group).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
