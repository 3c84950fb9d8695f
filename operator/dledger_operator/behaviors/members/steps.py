"""The steps from a group's current members to those that its spec asks for. Pure."""

from dataclasses import dataclass
from typing import TypeAlias

from dledger_formats.protocol.membership_change import ChangeKind
from dledger_operator.behaviors.steps import FoundAgain, HandOver, SetPods, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMember:
    """Ask the leader for a membership change; the step also deletes a removed member's pod."""

    kind: ChangeKind
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteClaims:
    """Delete the volume claims of these ordinals, whose members were removed."""

    ordinals: frozenset[int]


Step: TypeAlias = SetPods | FoundAgain | ChangeMember | HandOver | DeleteClaims | Wait
