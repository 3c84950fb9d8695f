"""The keys of a spec that are settings of the members, by the fields of `NodeSettings`.

Only what a spec sets is in the result. A member that does not get a setting keeps its own default,
and an image of an earlier release, which refuses variables that it does not know, still starts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from dledger_formats.live_settings import LIVE
from dledger_formats.quantities import quantity_bytes
from dledger_formats.settings import NO_STATE_MACHINE, PASSED_ON, OnDamage
from dledger_operator.spec.quantities import duration_ms
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

SettingValues: TypeAlias = Mapping[str, str | int]

ON_DAMAGE: Final = {"Heal": OnDamage.HEAL, "StayOut": OnDamage.STAY_OUT}
STATE_MACHINES: Final = {"None": NO_STATE_MACHINE, "Register": "register"}
APPENDS_TO_FOLLOWERS: Final = {"PassOn": PASSED_ON, "Refuse": "refuse"}
LOG_LEVELS: Final = {"Debug": "debug", "Info": "info", "Warning": "warning", "Error": "error"}
_HOUR_MS: Final = 3_600_000


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _hours(value: Any) -> int:
    if duration_ms(value) % _HOUR_MS:
        raise ValueError(f"{value!r} is not a whole number of hours")
    return duration_ms(value) // _HOUR_MS


def _seconds(value: Any) -> int:
    if duration_ms(value) % 1000:
        raise ValueError(f"{value!r} is not a whole number of seconds")
    return duration_ms(value) // 1000


def _hours_of_day(value: Any) -> str:
    if not isinstance(value, list) or not value:
        raise TypeError(f"{value!r} is not a list of hours")
    return ";".join(f"{_number(hour):02}" for hour in value)


def _one_of(words: Mapping[str, str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} must be {' or '.join(words)}")
        return str(words[value])

    return read


# The path of a key below `spec`, its field of NodeSettings, and how its value is read.
_KEYS: Final[tuple[tuple[str, str, Callable[[Any], str | int]], ...]] = (
    ("log.retention.maxAge", "file_reserved_hours", _hours),
    ("log.retention.maxBytes", "retention_bytes", quantity_bytes),
    ("log.retention.deleteHours", "delete_when", _hours_of_day),
    ("log.retention.disk.checkExpiredPercent", "disk_check_expired_percent", _number),
    ("log.retention.disk.forceCleanPercent", "disk_force_clean_percent", _number),
    ("log.retention.disk.fullPercent", "disk_full_percent", _number),
    ("log.scrubInterval", "scrub_interval_s", _seconds),
    ("log.onDamage", "on_damage", _one_of(ON_DAMAGE)),
    ("limits.connections", "connections_max", _number),
    ("limits.connectionsPerAddress", "connections_per_address_max", _number),
    ("limits.frameBytes", "client_frame_bytes_max", quantity_bytes),
    ("limits.pendingAppends", "pending_requests_max", _number),
    ("limits.pendingAppendsPerAddress", "client_pending_appends_max", _number),
    ("limits.requestsPerSecondPerAddress", "client_requests_per_s_max", _number),
    ("limits.bytesPerSecondPerAddress", "client_bytes_per_s_max", quantity_bytes),
    ("stateMachine.type", "state_machine", _one_of(STATE_MACHINES)),
    ("stateMachine.snapshotThreshold", "snapshot_threshold", _number),
    ("stateMachine.snapshotsReserved", "snapshots_reserved", _number),
    ("appendsToFollowers", "appends_to_followers", _one_of(APPENDS_TO_FOLLOWERS)),
    ("logLevel", "log_level", _one_of(LOG_LEVELS)),
)
_HOW: Final = {"disk_check_expired_percent": 70, "disk_force_clean_percent": 100}
"""The defaults of the schema and of the node."""
LIVE_PATHS: Final = tuple(path for path, field, _ in _KEYS if field in LIVE)
"""The keys that running members take; no pod is replaced for them."""


def read_settings(spec: SpecReader) -> SettingValues:
    """Return the values of the settings that a spec sets. Raises InvalidSpecError."""
    found: dict[str, str | int] = {}
    for path, field, convert in _KEYS:
        *sections, key = path.split(".")
        reader = spec
        for name in sections:
            reader = reader.section(name)
        if reader.values.get(key) is not None:
            found[field] = reader.converted(key, convert, "")
    if found.get("state_machine") == NO_STATE_MACHINE:
        del found["state_machine"]  # the schema's default
    _check_percentages(found)
    _check_retention(found, spec.section("log").section("retention"))
    return found


def _check_retention(found: Mapping[str, Any], retention: SpecReader) -> None:
    """Refuse a retention that says how to remove segments, but not which."""
    chosen = {name: found[name] for name in _HOW if found.get(name, _HOW[name]) != _HOW[name]}
    chosen |= {"delete_when": ""} if "deleteHours" in retention.values else {}
    if chosen and not {"file_reserved_hours", "retention_bytes"} & found.keys():
        raise InvalidSpecError(
            f"{retention.path} removes nothing without maxAge or maxBytes: set one of them"
        )


def _check_percentages(found: Mapping[str, Any]) -> None:
    """Refuse thresholds that would let a leader refuse appends before anything is removed."""
    full = found.get("disk_full_percent", 100)
    expired = found.get("disk_check_expired_percent", 70)
    forced = found.get("disk_force_clean_percent", 100)
    if not (expired <= full and (forced == 100 or expired <= forced <= full)):
        raise InvalidSpecError(
            f"spec.log.retention.disk: checkExpiredPercent is {expired}, forceCleanPercent is "
            f"{forced} and fullPercent is {full}; they must not fall in this order, or the leader "
            "would refuse appends before old segments are removed (a forceCleanPercent of 100 "
            "means never)"
        )


def without_live(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec without the keys that running members take."""
    rest = dict(spec)
    for path in LIVE_PATHS:
        _remove(rest, path.split("."))
    return rest


def _remove(values: dict[str, Any], path: list[str]) -> None:
    """Remove a nested key, and each object on the way to it that is empty without it."""
    inner = values.get(path[0])
    if len(path) > 1 and isinstance(inner, dict):
        values[path[0]] = copied = dict(inner)
        _remove(copied, path[1:])
        if copied:
            return
    elif len(path) > 1:
        return
    values.pop(path[0], None)
