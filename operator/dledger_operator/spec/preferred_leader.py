"""Which member should lead: `spec.preferredLeader`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger_operator import names
from dledger_operator.spec.quantities import duration_ms
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
DEFAULT_STABLE_FOR: Final = "60s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredLeader:
    """The preferred leader: one member, or every member whose node has certain labels."""

    member_id: str = ""
    """The id of the member; empty if nodes decide."""
    node_labels: Mapping[str, str]
    """The labels that the leader's node should have; empty if `member_id` is set."""
    stable_for_s: float
    """How long a preferred member must have been able to lead before it gets the leadership."""

    def __str__(self) -> str:
        """Describe the preference in the words of the spec."""
        if self.member_id:
            return f"member {self.member_id}"
        if set(self.node_labels) == {ZONE_LABEL}:
            return f"a member in zone {self.node_labels[ZONE_LABEL]}"
        listed = ", ".join(f"{key}={value}" for key, value in sorted(self.node_labels.items()))
        return f"a member on a node with {listed}"


def read_preferred_leader(section: SpecReader, replicas: int) -> PreferredLeader | None:
    """Read the preference; None if there is none. Raises InvalidSpecError."""
    if not section.values:
        return None
    member_id, zone = section.text("member"), section.text("zone")
    labels = section.texts("nodeLabels")
    if sum(map(bool, (member_id, zone, labels))) != 1:
        raise InvalidSpecError(f"{section.path} must have one of member, zone and nodeLabels")
    if member_id and not 0 <= names.ordinal(member_id) < replicas:
        raise InvalidSpecError(
            f"{section.path}.member is {member_id!r}, which is none of the {replicas} members"
        )
    return PreferredLeader(
        member_id=member_id,
        node_labels={ZONE_LABEL: zone} if zone else labels,
        stable_for_s=section.converted("stableFor", duration_ms, DEFAULT_STABLE_FOR) / 1000,
    )
