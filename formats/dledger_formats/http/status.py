"""The JSON pages of a node: `/status`, `/leader` and `/manifest`.

Keys are camelCase in JSON and snake_case here. A reader ignores unknown keys, so that an operator
may be older than its nodes. It refuses an answer that lacks a key without a default, so that it
does not decide on a guess.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from dledger_formats import json_objects
from dledger_formats.http.broker_status import BrokerStatus
from dledger_formats.http.retention import RetentionState

DAMAGE_HEADER: Final = "DLedger-Damage"
"""The header of a 500 response which means that the member cannot read its own file; the body says
why. A 500 response without it is a failure of the member's program.
"""


class Role(enum.StrEnum):
    """A member's role in its term (Java DLedger's `MemberState.Role`)."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"


class MembershipRole(enum.StrEnum):
    """A member's membership in its group, according to its own log."""

    VOTER = "Voter"
    LEARNER = "Learner"
    """The member receives entries but does not count in quorums."""
    NONE = "None"
    """The member was removed or not added yet, or its log does not contain the change yet."""


class FlushDiskType(enum.StrEnum):
    """When a member confirms an entry: once it is on disk, or once it is in memory."""

    SYNC_FLUSH = "SyncFlush"
    ASYNC_FLUSH = "AsyncFlush"


STORE_IS_OPENING: Final = "the store is being opened"
"""The reason of a member that reads its log at its start, which may take minutes."""


class StorageState(enum.StrEnum):
    """Whether a member can use its volume; `reason` explains it."""

    SOUND = "Sound"
    FULL = "Full"
    """There is no room for more entries; the member serves the entries that it has."""
    STALLED = "Stalled"
    """A write to the disk does not finish."""
    FAILED = "Failed"
    """The disk refuses to read or write: an IO error, or a read-only file system."""
    DAMAGED = "Damaged"
    """The disk does not hold the bytes that were written."""
    HEALING = "Healing"
    """The store was damaged, and the member is re-fetching the lost entries from its leader; or it
    serves, and waits for a peer to mend damaged entries in place.
    """


class StoodBecause(enum.StrEnum):
    """Why a member stood for election; of several rounds without a winner, why it stood first."""

    NO_HEARTBEAT = "NO_HEARTBEAT"
    """The member's leader sent nothing for an election timeout."""
    LEADER_LINK_LOST = "LEADER_LINK_LOST"
    """The connection to the leader broke, and the leader has sent nothing since."""
    NO_LEADER = "NO_LEADER"
    """The member knew no leader for an election timeout."""
    NO_WINNER = "NO_WINNER"
    """An election that the member did not begin itself had no winner."""
    TRANSFER = "TRANSFER"
    """The leader handed the leadership over to the member, as planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """The leader's view of one other member."""

    peer_id: str
    match_index: int
    """The highest index up to which that member's disk is known to match the leader's log; -1 if
    unknown.
    """
    reachable: bool
    full: bool = False
    """Whether that member has reported to this leader that its volume is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One member's view of itself. Indexes start at 0; -1 means that there is none."""

    group: str
    self_id: str
    role: Role
    term: int
    leader_id: str | None
    """The leader of `term`: the one that this member follows, or itself; None without a leader."""
    master: bool
    """Whether this member is a leader whose first entry of the term is committed."""
    ready: bool
    """Whether this member recently took part in a heartbeat or a commit, and serves its role."""
    reason: str
    """Human-readable reason why the member is not ready; empty when it is."""
    broker_id: int
    """RocketMQ's broker id: 0 on the master, ordinal + 1 on a slave, -1 without a leader."""
    ledger_begin_index: int
    ledger_end_index: int
    ledger_end_term: int
    committed_index: int
    durable_index: int
    """The last index that this member has flushed to disk."""
    applied_index: int = -1
    """The last index that is applied to this member's state; -1 if it keeps none."""
    state_behind: bool = False
    """Whether the state lacks what the log had at the start: the member lets others be elected
    first, and declines a leadership transfer.
    """
    flush_disk_type: FlushDiskType
    peers: dict[str, str]
    """The id and host:port of every member of the group, according to this member's log."""
    followers: list[PeerStatus] = field(default_factory=list)
    """All other members; empty except on the leader."""
    storage: StorageState = StorageState.SOUND
    joining: bool = False
    """The member started without its promises, because its volume is new, lost or damaged, and does
    not vote yet; `reason` says what it waits for.
    """
    unheard_voters: list[str] = field(default_factory=list)
    """The other voters, according to the settings, that a joining member has not heard from since
    its process started. It votes for nobody before it has heard from all of them.
    """
    seed_sha256: str = ""
    """The `copySha256` of the archive that this member began with, as long as it has nothing but
    the archive's log, and has heard of no later term; empty otherwise.
    """
    joined_index: int = -1
    """The index up to which this voter had to take the leader's log before it voted again, after it
    lost its promises; -1 if it has not since its process started, or if the group was new.
    """
    membership: MembershipRole = MembershipRole.VOTER
    voters: list[str] = field(default_factory=list)
    learners: list[str] = field(default_factory=list)
    addable: list[str] = field(default_factory=list)
    """The ids that are not members but may be added, according to this member's settings."""
    membership_index: int = -1
    """Index of the entry with the current membership; -1 while the membership of the settings is in
    effect, or if the entry was removed. While it is above `committed_index`, a change is in
    progress.
    """
    settings: dict[str, str] = field(default_factory=dict)
    """The live settings in force, by the names of their variables (`live_settings`)."""
    settings_problem: str = ""
    """Human-readable reason why the file with live settings is refused; empty if it is not."""
    demands_admin_token: bool = False
    """Whether membership changes and leadership transfers need the group's administration token."""
    admin_tokens_version: str = ""
    """The version of the tokens that the member accepts; empty if it has none or they name none."""
    group_identity: str = ""
    """Distinguishes the group from others of its name; empty if this member knows no identity."""
    scrub_passes: int = 0
    """How often the whole log was read for rot since the member's store was opened."""
    scrub_position_bytes: int = 0
    """The position up to which the current pass has read; 0 between two passes."""
    mended_ranges: int = 0
    """Damaged ranges that were mended in place since the member's process started."""
    unmended: str = ""
    """The damage that a member in service found, and why it is not mended yet; empty if none."""
    recovery_size_bytes: int = 0
    """Bytes of the log that the opening of the store verifies; 0 once the member is in service."""
    recovery_verified_bytes: int = 0
    """How many of these bytes are verified."""
    volume_size_bytes: int = 0
    """The size of the member's volume, as seen about a second ago; 0 if it is not known."""
    volume_available_bytes: int = 0
    """Bytes that are available on the volume."""
    broker: BrokerStatus | None = None
    """None from a member that is not a RocketMQ broker, or is out of service."""
    version: str

    def follower(self, member_id: str) -> PeerStatus | None:
        """Return this leader's view of another member; None if it has none."""
        return next((each for each in self.followers if each.peer_id == member_id), None)

    def lacks_committed(self, member_id: str, *, last_known: bool = False) -> int | None:
        """Return how many committed entries a member lacks, as this leader reports; None if the
        leader does not reach the member.

        With `last_known`, the last match index of a member that is out of reach counts, too.
        """
        if member_id == self.self_id:
            return 0
        peer = self.follower(member_id)
        if peer is None or not (peer.reachable or last_known):
            return None
        return max(0, self.committed_index - peer.match_index)

    def to_json(self) -> bytes:
        """Encode as JSON."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if a key is missing or has another type."""
        return json_objects.decode(cls, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The answer of the long poll: the leader that this member knows."""

    self_id: str
    term: int
    leader_id: str | None
    """The leader as in NodeStatus, but None on a leader that is not master yet."""
    master: bool
    ledger_end_index: int
    committed_index: int
    group: str = ""
    """The group's name; empty from members of an earlier release."""
    group_identity: str = ""
    """The identity of the group, as in NodeStatus."""
    stood_because: str = ""
    """Why this member stood for the election that it won (`StoodBecause`); empty unless it is
    master.
    """
    former_leader_id: str = ""
    """The leader that this member followed before it stood; empty if it knew none."""
    silent_ms: int = -1
    """Time from the last message of a leader until this member stood; -1 unless it is master."""
    election_ms: int = -1
    """Time from then until its first entry of the term was committed; -1 unless it is master."""
    leading_ms: int = -1
    """Time since that entry was committed; -1 unless this member is master."""

    @property
    def token(self) -> str:
        """The value of `since` with which a caller waits for the next change: `TERM:LEADER`."""
        return f"{self.term}:{self.leader_id or ''}"

    def to_json(self) -> bytes:
        """Encode as JSON."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if a key is missing or has another type."""
        return json_objects.decode(cls, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """The readable part of one data or index file."""

    name: str
    size_bytes: int
    readable_bytes: int
    """Bytes from the file's start that hold whole records, sealed or committed."""
    first_index: int
    """Index of the file's first entry, or of the first unit in an index file; -1 for none."""
    modified_ms: int = -1
    """Time of the last write to a data file, since the epoch; -1 if it is not known."""


FOREIGN_MAX: Final = 20
"""Foreign files that a manifest names."""


def foreign_names(names: Iterable[str]) -> list[str]:
    """Return the first names as a manifest has them: a file's name need not be text."""
    return [
        name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        for name in sorted(names)[:FOREIGN_MAX]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files that an auditor may read from this member, at one instant."""

    status: NodeStatus
    data: list[SegmentFile]
    index: list[SegmentFile]
    life: str = ""
    """Names this member's log from its opening on, until it is cut, replaced or set aside. While it
    stays the same, entries are only added at the end, and whole files removed at the front.
    """
    retention: RetentionState | None = None
    """None from a member that is out of service, or of an earlier release."""
    foreign: list[str] = field(default_factory=list)
    """Files in the segments' folders that are not segments, such as `data/notes.txt`; the first
    `FOREIGN_MAX` of them.
    """

    @property
    def is_unlisted(self) -> bool:
        """Whether the member has not opened its log and reports nothing about it: the term and the
        indexes of its status are those of an empty log.
        """
        is_closed = not (self.status.ready or self.status.voters or self.life)
        return is_closed and not self.data and self.status.committed_index < 0

    def to_json(self) -> bytes:
        """Encode as JSON."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if a key is missing or has another type."""
        return json_objects.decode(cls, raw)


def is_stranger(view: NodeStatus | LeaderView, group: str, identity: str) -> bool:
    """Return whether an answer is another group's: an address may have passed from one to another.

    A name or identity that the answering member or the caller does not know (empty) proves nothing.
    """
    other_name = view.group not in ("", group)
    return other_name or identities_differ(view.group_identity, identity)


def identities_differ(one: str, other: str) -> bool:
    """Return whether two identities are both known, and differ."""
    return bool(one and other) and one != other
