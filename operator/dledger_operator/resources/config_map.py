"""The members' settings, as the environment that they read."""

import hashlib
from typing import Final

from dledger_formats.settings import format_peers, variable_name
from dledger_operator import names
from dledger_operator.resources.metadata import child
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.views import Manifest

# What every member shares and a group chooses. The rest keeps the node's own defaults: an older
# image must not be given a variable that it does not know, because it refuses such.
_SETTINGS: Final = (
    "group", "peers", "store_base_dir", "heartbeat_interval_ms", "election_timeout_ms",
    "flush_disk_type", "segment_size_bytes", "index_segment_size_bytes", "log_format",
)  # fmt: skip


# What the pod template hands on by a reference. It has no prefix, or pods that were made before the
# template did so would read it from `envFrom`, and an older image refuses what it does not know.
STATE_KEY: Final = "INITIAL_GROUP_STATE"


def build(group: Group, shape: Shape) -> Manifest:
    """Build it."""
    manifest = child(group, "ConfigMap", "v1", names.settings_config_map(group.name))
    return manifest | {"data": environment(group, shape) | {STATE_KEY: shape.state.value}}


def environment(group: Group, shape: Shape) -> dict[str, str]:
    """The variables that all members share."""
    every = group.node_settings(shape).to_environment()
    return {variable: every[variable] for variable in map(variable_name, _SETTINGS)}


def addable_peers(group: Group, shape: Shape) -> str:
    """Who may be added, as members read it."""
    return format_peers(group.node_settings(shape).addable_peers)


def config_hash(group: Group, shape: Shape) -> str:
    """A short digest: pods with another one run with older settings.

    The state is left out: it matters to nobody who has begun.
    """
    text = "\n".join(f"{name}={value}" for name, value in sorted(environment(group, shape).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
