"""Settings that a running member applies without a restart, from a file that may change.

The file has lines of the form `DLEDGER_RETENTION_BYTES=1000000`; empty lines and lines that begin
with `#` are ignored. Its values take precedence over the environment. A setting that is removed
from the file falls back to the environment's value. A file with any mistake is refused as a whole.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final

from dledger_formats.settings import NodeSettings, SettingsError, variable_name

LIVE: Final = (
    "file_reserved_hours",
    "delete_when",
    "retention_bytes",
    "disk_check_expired_percent",
    "disk_force_clean_percent",
    "disk_full_percent",
    "client_frame_bytes_max",
    "connections_max",
    "connections_per_address_max",
    "pending_requests_max",
    "client_pending_appends_max",
    "client_requests_per_s_max",
    "client_bytes_per_s_max",
    "scrub_interval_s",
    "log_level",
)
"""The fields of NodeSettings that may change while a member runs."""
FILE_BYTES_MAX: Final = 64 * 1024


def overlay(settings: NodeSettings, text: str) -> NodeSettings:
    """Return the settings with the values of a file. Raises SettingsError for any mistake."""
    values = _values(text)
    allowed = {variable_name(name) for name in LIVE}
    for name in values:
        if name not in allowed:
            raise SettingsError(
                f"{name} cannot change while the member runs; the settings that can are "
                f"{', '.join(sorted(allowed))}"
            )
    return NodeSettings.from_environment(settings.to_environment() | values)


def in_force(settings: NodeSettings) -> dict[str, str]:
    """Return the live settings by the names of their variables."""
    environment = settings.to_environment()
    return {variable_name(name): environment[variable_name(name)] for name in LIVE}


def to_text(values: Mapping[str, str]) -> str:
    """Write a file with these variables."""
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items()))


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, sign, value = stripped.partition("=")
        if not sign:
            raise SettingsError(f"line {number}, {stripped!r}, is not of the form NAME=VALUE")
        if name in values:
            raise SettingsError(f"line {number}: {name} occurs twice")
        values[name] = value
    return values


assert {field.name for field in dataclasses.fields(NodeSettings)}.issuperset(LIVE)
