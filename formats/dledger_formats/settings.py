"""The node's settings as environment variables: the operator writes them, the node reads them.

Every variable begins with `DLEDGER_`. One that is not listed here is refused, with the nearest name
that is: a misspelt setting must not silently leave a default in force. DLedger's own names are kept
in the field's comments.
"""

import dataclasses
import difflib
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from dledger_formats.http.status import FlushDiskType

PREFIX: Final = "DLEDGER_"
GROUP_PATTERN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62})")
MEMBER_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_]{1,32}")
REMOTING_PORT: Final = 40911
HTTP_PORT: Final = 40912
CLIENT_FRAME_BYTES_MAX: Final = (4 * 1024 * 1024 + 2) // 3 * 4 + 64 * 1024
"""The largest entry of DLedger, 4 MiB, as base64; and 64 KiB for all else in the frame."""
CONNECTIONS_MAX: Final = 1024
CONNECTIONS_PER_ADDRESS_MAX: Final = 64
MEMBERS_MAX: Final = 64
"""Of one group."""


class GroupState(enum.StrEnum):
    """Whether a group may be about to begin (etcd's `initial-cluster-state`)."""

    NEW = "new"
    """The group begins as soon as all of `peers` are there and have no memory, whoever else may be
    added. Only for a group that surely has no log anywhere.
    """
    EXISTING = "existing"
    """Those who may be added must be there too, and have no memory either: one of them could have
    what the first voters have lost.
    """


class OnDamage(enum.StrEnum):
    """What a member does about a log, or a term and vote, that it cannot trust."""

    HEAL = "heal"
    """It sets aside what is damaged and takes it again from its leader."""
    STAY_OUT = "stay-out"
    """It changes nothing and waits for a person."""


NO_STATE_MACHINE: Final = "none"
STATE_MACHINES: Final = (NO_STATE_MACHINE, "register")


class SettingsError(ValueError):
    """A setting is missing, unknown or out of range; the message names it and says what is
    allowed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One member's settings, checked."""

    group: str
    self_id: str
    """This member's id, for example n0; a key of `peers` or of `addable_peers`."""
    peers: dict[str, str]
    """Every first voter's id and host:port (DLedger writes `n0-host:port;n1-host:port`). Who votes
    later, the log says; these stay as they are for as long as the group lives.
    """
    store_base_dir: str
    addable_peers: dict[str, str] = dataclasses.field(default_factory=dict)
    """Who may be added to the group, in the same form. They need not exist before."""
    initial_group_state: GroupState = GroupState.EXISTING
    """Matters only where there are `addable_peers`, and only until the group has begun."""
    listen_host: str = "0.0.0.0"  # noqa: S104 - in a pod, every address is the pod's own
    http_port: int = HTTP_PORT
    heartbeat_interval_ms: int = 250
    """heartBeatTimeIntervalMs"""
    election_timeout_ms: int = 1000
    """A follower's timeout is random between this and twice this."""
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    flush_stall_ms: int = 5000
    """A flush that takes longer makes a member hand its leadership over and wait for its disk."""
    on_damage: OnDamage = OnDamage.HEAL
    """heal, or stay-out where damaged files must be left as they are found."""
    segment_size_bytes: int = 1 << 30
    """mappedFileSizeForEntryData"""
    index_segment_size_bytes: int = 32 * 5 * 1024 * 1024
    """mappedFileSizeForEntryIndex"""
    file_reserved_hours: int = 0
    """fileReservedHours: older segments are removed once every voter has them; 0 keeps them all.
    DLedger's default is 72."""
    delete_when: str = "04"
    """deleteWhen: hours of the local day in which that is done, for example 04;16"""
    retention_bytes: int = 0
    """How many bytes of entries are kept at most; 0 for any number."""
    disk_check_expired_percent: int = 70
    """diskSpaceRatioToCheckExpired: a fuller volume has what is too old go at any hour."""
    disk_force_clean_percent: int = 100
    """diskSpaceRatioToForceClean: a fuller volume has the oldest committed segment go, though a
    voter may lack it; 100 never. DLedger's default is 85."""
    disk_full_percent: int = 100
    """diskFullRatio: a leader on a fuller volume refuses appends; 100 when it is full indeed.
    DLedger's default is 90."""
    state_machine: str = NO_STATE_MACHINE
    """What the committed entries are applied to: none, or register. The same for all members."""
    snapshot_threshold: int = 1000
    """snapshotThreshold: a snapshot of the state is taken once so many entries were applied."""
    snapshots_reserved: int = 3
    """maxSnapshotReservedNum: so many are kept, and the entries behind the oldest of them."""
    pending_requests_max: int = 10_000
    """maxPendingRequestsNum: appends waiting for their quorum; more are refused with 503."""
    client_frame_bytes_max: int = CLIENT_FRAME_BYTES_MAX
    """A client's longer frame closes its connection; Java takes 16 MiB."""
    connections_max: int = CONNECTIONS_MAX
    """Connections of clients; members come in all the same."""
    connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX
    """Those of one host. More where clients share an address, as behind a gateway."""
    log_format: str = "text"
    """text for people, json for collectors"""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def address(self) -> str:
        """This member's own host:port."""
        return self.known_peers[self.self_id]

    @property
    def known_peers(self) -> dict[str, str]:
        """The ids and addresses of all who can ever be members."""
        return self.peers | self.addable_peers

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read every `DLEDGER_*` variable; SettingsError names the first one that is wrong."""
        given = {name: text for name, text in environment.items() if name.startswith(PREFIX)}
        known = {variable_name(item.name): item for item in dataclasses.fields(cls)}
        for name in sorted(given.keys() - known.keys()):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise SettingsError(f"unknown setting {name}{hint}")
        values: dict[str, object] = {}
        for name, item in known.items():
            if name in given:
                values[item.name] = _parse(name, item.name, given[name])
            elif item.default is item.default_factory is dataclasses.MISSING:
                raise SettingsError(f"{name} is not set")
        return cls(**values)  # type: ignore[arg-type]

    def to_environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads back to the same settings."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        values |= {name: format_peers(getattr(self, name)) for name in _PEERS}
        return {variable_name(name): str(value) for name, value in values.items()}


def variable_name(field_name: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field_name.upper()


def format_peers(peers: Mapping[str, str]) -> str:
    """DLedger's form of the member list: `n0-host:port;n1-host:port`."""
    return ";".join(f"{peer_id}-{address}" for peer_id, address in peers.items())


def parse_peers(text: str) -> dict[str, str]:
    """Read DLedger's form of the member list; the id ends at the first `-`."""
    peers: dict[str, str] = {}
    for part in filter(None, text.split(";")):
        peer_id, dash, address = part.partition("-")
        host, colon, port = address.rpartition(":")
        if not (dash and colon and host and MEMBER_ID_PATTERN.fullmatch(peer_id)):
            raise SettingsError(f"{part!r} is not a member: ID-HOST:PORT is expected")
        if not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
            raise SettingsError(f"{part!r} has no port between 1 and 65535")
        if peer_id in peers:
            raise SettingsError(f"the member {peer_id} is listed twice")
        peers[peer_id] = address
    return peers


def _parse(name: str, field_name: str, text: str) -> object:
    if field_name in _PEERS:
        try:
            return parse_peers(text)
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}") from None
    if field_name in _CHOICES:
        choices = _CHOICES[field_name]
        try:
            return choices(text)
        except ValueError:
            allowed = " or ".join(choices)
            raise SettingsError(f"{name} is {text!r}; it must be {allowed}") from None
    if field_name in _RANGES:
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{name} is {text!r}; a whole number is expected") from None
    return text


_PEERS: Final = ("peers", "addable_peers")
_CHOICES: Final[dict[str, type[enum.StrEnum]]] = {
    "flush_disk_type": FlushDiskType,
    "initial_group_state": GroupState,
    "on_damage": OnDamage,
}
# Field, smallest and largest value. A segment must hold the largest entry and its blank record.
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "http_port": (1, 65535),
    "heartbeat_interval_ms": (20, 60_000),
    "election_timeout_ms": (50, 600_000),
    "flush_stall_ms": (100, 3_600_000),
    "segment_size_bytes": (4096, 1 << 40),
    "index_segment_size_bytes": (32, 1 << 40),
    "file_reserved_hours": (0, 24 * 366 * 100),
    "retention_bytes": (0, 1 << 62),
    "disk_check_expired_percent": (1, 100),
    "disk_force_clean_percent": (50, 100),
    "disk_full_percent": (50, 100),
    "snapshot_threshold": (1, 1 << 62),
    "snapshots_reserved": (1, 100),
    "pending_requests_max": (1, 1_000_000),
    "client_frame_bytes_max": (64 * 1024, 16 * 1024 * 1024),
    "connections_max": (1, 1_000_000),
    "connections_per_address_max": (1, 1_000_000),
}


def _check_members(settings: NodeSettings) -> None:
    both = settings.peers.keys() & settings.addable_peers.keys()
    if both:
        raise SettingsError(
            f"{', '.join(sorted(both))} cannot be in {variable_name('peers')} and in "
            f"{variable_name('addable_peers')}"
        )
    if not settings.peers:
        raise SettingsError(f"{variable_name('peers')} names nobody; a group has a voter at least")
    if settings.self_id not in settings.known_peers:
        raise SettingsError(
            f"{variable_name('self_id')} is {settings.self_id!r}, which is not in "
            f"{variable_name('peers')}: {', '.join(settings.known_peers)}"
        )
    if len(settings.known_peers) > MEMBERS_MAX:
        raise SettingsError(f"{variable_name('peers')}: a group has {MEMBERS_MAX} members at most")


def _check(settings: NodeSettings) -> None:
    if not GROUP_PATTERN.fullmatch(settings.group):
        raise SettingsError(
            f"{variable_name('group')} is {settings.group!r}; letters and digits are expected"
        )
    _check_members(settings)
    for name, (smallest, largest) in _RANGES.items():
        value = getattr(settings, name)
        if not smallest <= value <= largest:
            raise SettingsError(
                f"{variable_name(name)} is {value}; allowed are {smallest} to {largest}"
            )
    if settings.index_segment_size_bytes % 32:
        raise SettingsError(f"{variable_name('index_segment_size_bytes')} must be a multiple of 32")
    if settings.election_timeout_ms < 2 * settings.heartbeat_interval_ms:
        raise SettingsError(
            f"{variable_name('election_timeout_ms')} must be at least twice "
            f"{variable_name('heartbeat_interval_ms')}"
        )
    if not all(re.fullmatch("[01]?[0-9]|2[0-3]", hour) for hour in settings.delete_when.split(";")):
        raise SettingsError(
            f"{variable_name('delete_when')} is {settings.delete_when!r}; hours from 0 to 23 are "
            "expected, with ; between them"
        )
    if settings.state_machine not in STATE_MACHINES:
        raise SettingsError(
            f"{variable_name('state_machine')} is {settings.state_machine!r}; it must be "
            f"{' or '.join(STATE_MACHINES)}"
        )
    if settings.log_format not in ("text", "json"):
        raise SettingsError(
            f"{variable_name('log_format')} is {settings.log_format!r}; text or json"
        )
