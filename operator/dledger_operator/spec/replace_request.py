"""A `DLedgerReplace`, parsed and defaulted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dledger_operator.spec.quantities import duration_ms
from dledger_operator.spec.spec_reader import SpecReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """The validated spec of one `DLedgerReplace`."""

    namespace: str
    name: str
    group_name: str
    member: str
    """Id of the member that is lost."""
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
            group_name=spec.section("groupRef").required_text("name"),
            member=spec.required_member("member"),
            timeout_s=spec.converted("timeout", duration_ms, "1h") / 1000,
            ttl_after_finished_s=spec.converted("ttlAfterFinished", duration_ms, "24h") / 1000,
        )
