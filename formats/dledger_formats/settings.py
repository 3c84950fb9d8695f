"""The node's settings as environment variables: the operator writes them, the node reads them.

Every variable begins with `DLEDGER_`. An unknown variable is refused, with the most similar known
name, so that a misspelled setting does not silently leave a default in force. The docstrings of the
fields give DLedger's own names.
"""

import dataclasses
import difflib
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from dledger_formats.command_line_variables import COMMAND_LINE_VARIABLES
from dledger_formats.digits import plain_int
from dledger_formats.http.status import FlushDiskType
from dledger_formats.peers import PeersError, format_peers, parse_peers

PREFIX: Final = "DLEDGER_"
GROUP_PATTERN: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62})")
GROUP_IDENTITY_PATTERN: Final = re.compile(r"[A-Za-z0-9-]{0,64}")
REMOTING_PORT: Final = 40911
HTTP_PORT: Final = 40912
CLIENT_FRAME_BYTES_MAX: Final = (4 * 1024 * 1024 + 2) // 3 * 4 + 64 * 1024
"""The largest entry of DLedger, 4 MiB, as base64, and 64 KiB for the rest of the frame."""
CONNECTIONS_MAX: Final = 1024
CONNECTIONS_PER_ADDRESS_MAX: Final = 64
MEMBERS_MAX: Final = 64
"""The largest number of members of one group, including those that may be added."""


class GroupState(enum.StrEnum):
    """Whether this may be the first start of a group (like etcd's `initial-cluster-state`)."""

    NEW = "new"
    """The group starts once all of `peers` answer and have empty disks, whatever the addable
    members have. Only for a group that certainly has no log anywhere.
    """
    EXISTING = "existing"
    """The addable members must answer with empty disks too: one of them could have entries that
    the first voters have lost.
    """


class OnDamage(enum.StrEnum):
    """How a member reacts to a damaged log, or a damaged term and vote."""

    HEAL = "heal"
    """The member sets the damaged files aside and fetches them again from its leader."""
    STAY_OUT = "stay-out"
    """The member changes nothing and stays out of service until someone repairs it."""


NO_STATE_MACHINE: Final = "none"
EMPTY_LOG, ARCHIVE = "empty", "archive"
STATE_MACHINES: Final = (NO_STATE_MACHINE, "register")
PASSED_ON: Final = "pass-on"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A setting is missing, unknown or out of range. The message names it and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The validated settings of one member."""

    group: str
    """Name of the group: letters, digits, dots, dashes and underscores."""
    self_id: str
    """This member's id, for example n0; a key of `peers` or of `addable_peers`."""
    peers: dict[str, str]
    """The id and host:port of every first voter (DLedger writes `n0-host:port;n1-host:port`). The
    log determines later voters; this setting stays the same for the life of the group.
    """
    store_base_dir: str
    """Folder of the store; the member's files are in its folder dledger-MEMBER."""
    addable_peers: dict[str, str] = dataclasses.field(default_factory=dict)
    """The members that may be added to the group, in the same form. They need not exist yet."""
    initial_group_state: GroupState = GroupState.EXISTING
    """Whether the group may be new. Matters only with `addable_peers`, until the group has started.
    """
    first_log: str = EMPTY_LOG
    """What a new group begins with: empty, or archive for what `dledger-node seed` has copied."""
    group_identity: str = ""
    """Tells this group from every other, also from one of the same name: a random text such as a
    UUID, the same for all members. Empty: a member keeps the one in its folder, if there is one.
    """
    listen_host: str = ""
    """Address to listen on, for members and clients; empty for every one, of IPv4 and IPv6."""
    http_port: int = HTTP_PORT
    """Port of the pages /status, /leader and /metrics, and of the probes."""
    http_peers: dict[str, str] = dataclasses.field(default_factory=dict)
    """The host:port of the pages of the members that do not serve them on their host's
    `http_port`, in the same form as `peers`.
    """
    heartbeat_interval_ms: int = 250
    """heartBeatTimeIntervalMs: time between two heartbeats of a leader."""
    election_timeout_ms: int = 1000
    """Election timeout: a follower's is random between this and twice this."""
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    """flushDiskType: with SyncFlush a member flushes entries before it confirms them; with
    AsyncFlush it confirms them first, and flushes them every few milliseconds.
    """
    flush_stall_ms: int = 5000
    """Duration of a flush, a save of the term, the allocation of a segment or a read of the disk
    after which the disk counts as stalled: a leader hands over, and the member waits for its disk.
    """
    on_damage: OnDamage = OnDamage.HEAL
    """What to do about damage: heal, or stay-out if damaged files must be left untouched."""
    scrub_interval_s: int = 7 * 24 * 3600
    """Every committed byte is read once in this time; what has rotted is mended from a peer."""
    segment_size_bytes: int = 1 << 30
    """mappedFileSizeForEntryData: size of each data segment."""
    index_segment_size_bytes: int = 32 * 5 * 1024 * 1024
    """mappedFileSizeForEntryIndex: size of each index segment."""
    file_reserved_hours: int = 0
    """fileReservedHours: older segments are removed once every voter has them; 0 keeps all.
    DLedger's default is 72.
    """
    delete_when: str = "04"
    """deleteWhen: the hours of the local day in which segments are removed, for example 04;16"""
    retention_bytes: int = 0
    """Maximum number of bytes of entries to keep; 0 for no limit."""
    disk_check_expired_percent: int = 70
    """diskSpaceRatioToCheckExpired: on a fuller volume, old segments are removed at any hour."""
    disk_force_clean_percent: int = 100
    """diskSpaceRatioToForceClean: on a fuller volume, the oldest committed segment is removed even
    if a voter lacks it; 100 for never. DLedger's default is 85.
    """
    disk_full_percent: int = 100
    """diskFullRatio: a leader on a fuller volume refuses appends; 100 for a volume without any
    space. DLedger's default is 90.
    """
    state_machine: str = NO_STATE_MACHINE
    """The state machine of the group: none, or register. The same for all members."""
    snapshot_threshold: int = 1000
    """snapshotThreshold: how many entries are applied between two snapshots of the state."""
    snapshots_reserved: int = 3
    """maxSnapshotReservedNum: how many snapshots are kept, and all entries after the oldest."""
    pending_requests_max: int = 10_000
    """maxPendingRequestsNum: the appends that may wait for a quorum; more are refused with 503."""
    client_frame_bytes_max: int = CLIENT_FRAME_BYTES_MAX
    """The largest frame of a client; a larger one closes its connection. Java's limit is 16 MiB."""
    connections_max: int = CONNECTIONS_MAX
    """Maximum number of clients' connections. Connections of members do not count."""
    connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX
    """Maximum number of connections of one host. Raise it if clients share a gateway's address."""
    memory_limit_bytes: int = 0
    """Memory that the member may use, as its container's limit: connections together then hold less
    of it. 0 for no limit.
    """
    client_requests_per_s_max: int = 0
    """Requests a second that one address may send; 0 for no limit. More are read more slowly."""
    client_bytes_per_s_max: int = 0
    """Bytes a second that the clients of one address may send; 0 for no limit."""
    client_pending_appends_max: int = 0
    """The appends of one address that may wait for a quorum; more are refused with 503; 0 for no
    limit but that of all clients.
    """
    appends_to_followers: str = PASSED_ON
    """What a follower does with plain appends of clients that do not follow the leader themselves:
    pass-on to its leader, or refuse.
    """
    log_format: str = "text"
    """The form of log lines: text for a terminal, or json for log collectors."""
    log_level: str = "info"
    """The lowest level of log lines that are written: debug, info, warning or error."""
    live_settings_file: str = ""
    """A file whose settings take precedence and may change at any time (`live_settings`)."""
    admin_token_file: str = ""
    """A file with the group's administration tokens (`admin_tokens`), which may change at any time.
    Membership changes and leadership transfers then need one of them. Empty: they need none.
    """

    def __post_init__(self) -> None:
        _check(self)

    @property
    def address(self) -> str:
        """This member's own host:port."""
        return self.known_peers[self.self_id]

    @property
    def known_peers(self) -> dict[str, str]:
        """The ids and addresses of `peers` and `addable_peers`."""
        return self.peers | self.addable_peers

    def http_address_of(self, peer_id: str) -> str:
        """Return the host:port of a member's pages."""
        host = self.known_peers[peer_id].rpartition(":")[0]
        return self.http_peers.get(peer_id, f"{host}:{self.http_port}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read every `DLEDGER_*` variable except those of the command line.

        Raises SettingsError for the first wrong one.
        """
        given = {
            name: text
            for name, text in environment.items()
            if name.startswith(PREFIX) and name not in COMMAND_LINE_VARIABLES
        }
        known = {variable_name(item.name): item for item in dataclasses.fields(cls)}
        for name in sorted(given.keys() - known.keys()):
            near = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; the settings are {', '.join(known)}"
            )
            raise SettingsError(f"unknown setting {name}{hint}")
        values: dict[str, object] = {}
        for name, item in known.items():
            if name in given:
                values[item.name] = _parse(name, item.name, given[name])
            elif item.default is item.default_factory is dataclasses.MISSING:
                raise SettingsError(f"{name} is not set")
        return cls(**values)  # type: ignore[arg-type]

    def to_environment(self) -> dict[str, str]:
        """Return the variables that `from_environment` reads back to the same settings."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        values |= {name: format_peers(getattr(self, name)) for name in _PEERS}
        return {variable_name(name): str(value) for name, value in values.items()}


def variable_name(field_name: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + field_name.upper()


def _parse(name: str, field_name: str, text: str) -> object:
    if field_name in _PEERS:
        try:
            return parse_peers(text)
        except PeersError as error:
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
            return plain_int(text)
        except ValueError:
            raise SettingsError(f"{name} is {text!r}; it must be a whole number") from None
    return text


_PEERS: Final = ("peers", "addable_peers", "http_peers")
_CHOICES: Final[dict[str, type[enum.StrEnum]]] = {
    "flush_disk_type": FlushDiskType,
    "initial_group_state": GroupState,
    "on_damage": OnDamage,
}
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "first_log": (EMPTY_LOG, ARCHIVE),
    "state_machine": STATE_MACHINES,
    "appends_to_followers": (PASSED_ON, "refuse"),
    "log_format": ("text", "json"),
    "log_level": LOG_LEVELS,
}
# The smallest and largest value of each field.
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "http_port": (1, 65535),
    "heartbeat_interval_ms": (20, 60_000),
    "election_timeout_ms": (50, 600_000),
    "flush_stall_ms": (100, 3_600_000),
    "scrub_interval_s": (1, 366 * 24 * 3600),
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
    "memory_limit_bytes": (0, 1 << 62),
    "client_requests_per_s_max": (0, 1 << 31),
    "client_bytes_per_s_max": (0, 1 << 62),
    "client_pending_appends_max": (0, 1_000_000),
}


def _check_members(settings: NodeSettings) -> None:
    both = settings.peers.keys() & settings.addable_peers.keys()
    if both:
        raise SettingsError(
            f"{', '.join(sorted(both))} must not be in both {variable_name('peers')} and "
            f"{variable_name('addable_peers')}"
        )
    if not settings.peers:
        raise SettingsError(f"{variable_name('peers')} is empty; a group needs at least one voter")
    if settings.self_id not in settings.known_peers:
        raise SettingsError(
            f"{variable_name('self_id')} is {settings.self_id!r}, which is not in "
            f"{variable_name('peers')}: {', '.join(settings.known_peers)}"
        )
    if len(settings.known_peers) > MEMBERS_MAX:
        raise SettingsError(
            f"{variable_name('peers')} has too many members; at most {MEMBERS_MAX} are allowed"
        )


def _check(settings: NodeSettings) -> None:
    for name, form in (("group", GROUP_PATTERN), ("group_identity", GROUP_IDENTITY_PATTERN)):
        text = getattr(settings, name)
        if not form.fullmatch(text):
            raise SettingsError(f"{variable_name(name)} is {text!r}; it must match {form.pattern}")
    _check_members(settings)
    for name, (smallest, largest) in _RANGES.items():
        value = getattr(settings, name)
        if not smallest <= value <= largest:
            raise SettingsError(
                f"{variable_name(name)} is {value}; it must be {smallest} to {largest}"
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
            f"{variable_name('delete_when')} is {settings.delete_when!r}; it must be hours from 0 "
            "to 23, separated by ;"
        )
    for name, allowed in _WORDS.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise SettingsError(
                f"{variable_name(name)} is {value!r}; it must be {' or '.join(allowed)}"
            )
