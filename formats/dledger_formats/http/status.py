"""What a node says of itself over HTTP, as JSON: `/status`, `/leader` and `/manifest`.

Keys are camelCase in JSON and snake_case here. A reader ignores keys that it does not know, so that
an operator may be older than its nodes, and refuses an answer that lacks one, so that nobody
decides on a guess.
"""

import enum
from dataclasses import dataclass, field
from typing import Self

from dledger_formats import json_objects


class Role(enum.StrEnum):
    """A member's role in its term (Java DLedger's `MemberState.Role`)."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"


class MembershipRole(enum.StrEnum):
    """What a member is to its group, as its own log says."""

    VOTER = "Voter"
    LEARNER = "Learner"
    """It takes entries, and counts in no quorum."""
    NONE = "None"
    """It was not added yet, or was removed, or has not heard of it."""


class FlushDiskType(enum.StrEnum):
    """When an entry counts as held by a member: once it is on disk, or once it is in memory."""

    SYNC_FLUSH = "SyncFlush"
    ASYNC_FLUSH = "AsyncFlush"


class StorageState(enum.StrEnum):
    """Whether a member can use its volume; `reason` says more, for people."""

    SOUND = "Sound"
    FULL = "Full"
    """There is no room for more entries; what it has, it serves."""
    STALLED = "Stalled"
    """The disk does not finish a write."""
    FAILED = "Failed"
    """The disk refuses to read or write: an IO error, or a read-only file system."""
    DAMAGED = "Damaged"
    """What is on the disk is not what was written there."""
    HEALING = "Healing"
    """It was damaged, and what could not be kept is taken again from the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """What the leader knows of one other member."""

    peer_id: str
    match_index: int
    """Highest index known to be on that member's disk and equal to the leader's; -1 if unknown."""
    reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One member's own view; indexes start at 0, and -1 stands for "none"."""

    group: str
    self_id: str
    role: Role
    term: int
    leader_id: str | None
    """The leader of `term` that this member follows, or itself; None while there is none."""
    master: bool
    """True on a leader whose first entry of the term is committed: it may be called master."""
    ready: bool
    """This member took part in a heartbeat or a commit lately and serves its role."""
    reason: str
    """Why it is not ready, for people; empty when it is."""
    broker_id: int
    """RocketMQ's broker id: 0 on the master, ordinal + 1 on a slave, -1 without a leader."""
    ledger_begin_index: int
    ledger_end_index: int
    ledger_end_term: int
    committed_index: int
    durable_index: int
    """End of what this member has flushed to disk."""
    flush_disk_type: FlushDiskType
    peers: dict[str, str]
    """The id and host:port of everybody who belongs to the group, by this member's log."""
    followers: list[PeerStatus] = field(default_factory=list)
    """Filled on the leader alone."""
    storage: StorageState = StorageState.SOUND
    joining: bool = False
    """It came up without all that it had promised, its volume being new, lost or damaged, and does
    not vote yet; `reason` says what it waits for.
    """
    membership: MembershipRole = MembershipRole.VOTER
    voters: list[str] = field(default_factory=list)
    learners: list[str] = field(default_factory=list)
    addable: list[str] = field(default_factory=list)
    """Who is no member, and may be added by this member's settings."""
    membership_index: int = -1
    """The entry that says who belongs to the group; -1 while those of the settings do, or when it
    was removed. A change is under way while it lies above `committed_index`.
    """
    version: str

    def to_json(self) -> bytes:
        """Encode for the wire."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when a key is missing or has another type."""
        return json_objects.decode(cls, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The answer of the long poll: who leads, as this member knows it."""

    self_id: str
    term: int
    leader_id: str | None
    """As in NodeStatus, but None on a leader that is not yet master."""
    master: bool
    ledger_end_index: int
    committed_index: int

    @property
    def token(self) -> str:
        """What a caller passes as `since` to wait for the next change: `TERM:LEADER`."""
        return f"{self.term}:{self.leader_id or ''}"

    def to_json(self) -> bytes:
        """Encode for the wire."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when a key is missing or has another type."""
        return json_objects.decode(cls, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """One data or index file, as far as it may be read."""

    name: str
    size_bytes: int
    readable_bytes: int
    """From the file's start: whole records, sealed or committed."""
    first_index: int
    """Index of the first entry in it (of the first unit in an index file); -1 when it holds
    none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an auditor may read of this member, at one instant."""

    status: NodeStatus
    data: list[SegmentFile]
    index: list[SegmentFile]

    def to_json(self) -> bytes:
        """Encode for the wire."""
        return json_objects.encode(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when a key is missing or has another type."""
        return json_objects.decode(cls, raw)
