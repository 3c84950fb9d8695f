"""The steps from a group's current members to those that its spec asks for. Pure."""

from dataclasses import dataclass
from typing import TypeAlias

from dledger_formats.protocol.membership_change import ChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPods:
    """Set the replicas of the StatefulSet."""

    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgain:
    """Make the StatefulSet and its pods again, for a group that begins with fewer first voters."""

    first_voters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMember:
    """Ask the leader for a membership change; the pod of a removed member is deleted with it."""

    kind: ChangeKind
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Ask the leader to transfer its leadership."""

    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaims:
    """Delete the volume claims of these ordinals, whose members were removed."""

    ordinals: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No step is possible now."""

    reason: str
    message: str


Step: TypeAlias = SetPods | FoundAgain | ChangeMember | Transfer | DeleteClaims | Wait
