"""A `DLedgerSwitchover`, parsed and defaulted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_operator.spec.quantities import duration_ms
from dledger_operator.spec.spec_reader import SpecReader


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverRequest:
    """The validated spec of one `DLedgerSwitchover`."""

    namespace: str
    name: str
    uid: str
    group_name: str
    target: str
    """Id of the member that is to lead."""
    lag_entries_max: int
    """How many committed entries the target may lack. The leader has a bound of its own."""
    timeout_s: float
    ttl_after_finished_s: float

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Parse an API object. Raises InvalidSpecError, which names the invalid key."""
        metadata = body["metadata"]
        spec = SpecReader(body.get("spec") or {}, "spec")
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            group_name=spec.section("groupRef").required_text("name"),
            target=spec.required_member("target"),
            lag_entries_max=spec.number("maxLagEntries", TRANSFER_LAG_ENTRIES_MAX),
            timeout_s=spec.converted("timeout", duration_ms, "30s") / 1000,
            ttl_after_finished_s=spec.converted("ttlAfterFinished", duration_ms, "24h") / 1000,
        )
