"""The settings that all members share, and the ConfigMap with those that are not a pod's own.

Live settings are in a file of the ConfigMap, which pods mount. They are not part of the pod, so
that a change of them replaces no pod.
"""

from typing import Final

from dledger_formats import live_settings
from dledger_formats.settings import variable_name
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import child
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

# The settings that a group determines. The spec may set others; the rest keep the node's defaults.
_SETTINGS: Final = (
    "group", "peers", "addable_peers", "initial_group_state", "store_base_dir",
    "heartbeat_interval_ms", "election_timeout_ms", "flush_disk_type", "segment_size_bytes",
    "index_segment_size_bytes", "log_format", "live_settings_file",
)  # fmt: skip
_IF_SET: Final = ("admin_token_file", "memory_limit_bytes")
PEERS_KEY: Final = variable_name("peers")
STATE_KEY: Final = variable_name("initial_group_state")
FLUSH_KEY: Final = variable_name("flush_disk_type")


def build(group: Group, shape: Shape, without: frozenset[str] = frozenset()) -> Manifest:
    """Build the ConfigMap: the records of the founding, and the file with live settings.

    A container reads the initial group state from it at each start, because a member that restarts
    must not found a group again. All settings that are not live are in the pod: a container that
    restarts must not mix those of two revisions. `without` names live settings that members do not
    take from the file yet.
    """
    manifest = child(group, "ConfigMap", "v1", names.settings_config_map(group.name))
    live = live_settings.to_text(
        {name: value for name, value in live_values(group, shape).items() if name not in without}
    )
    return manifest | {"data": {**founding(group, shape), names.LIVE_SETTINGS_KEY: live}}


def founding(group: Group, shape: Shape) -> dict[str, str]:
    """Return the part of the ConfigMap's data that records the founding."""
    every = environment(group, shape)
    return {key: every[key] for key in (PEERS_KEY, STATE_KEY)}


def environment(group: Group, shape: Shape) -> dict[str, str]:
    """Return the environment variables that all members share."""
    every = group.node_settings(shape).to_environment()
    chosen = [field for field in group.settings if field not in live_settings.LIVE]
    chosen += [field for field in _IF_SET if every[variable_name(field)] not in ("", "0")]
    chosen += ["first_log"] if group.seed else []
    shared = {variable: every[variable] for variable in map(variable_name, (*_SETTINGS, *chosen))}
    return shared | (group.broker.environment(group.namespace, group.name) if group.broker else {})


def live_values(group: Group, shape: Shape) -> dict[str, str]:
    """Return the variables of the live settings that the spec or the members' program sets."""
    every = group.node_settings(shape).to_environment()
    return {variable: every[variable] for variable in map(variable_name, group.live_settings)}
