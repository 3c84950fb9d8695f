"""The volume claim templates of an existing StatefulSet, which are immutable. Pure."""

from collections.abc import Sequence
from typing import Final

from dledger_operator.api_objects import Manifest, Problem
from dledger_operator.spec.quantities import quantity_bytes

STORAGE_UNCHANGED: Final = "StorageUnchanged"


def keep_volume_claim_templates(manifest: Manifest, existing: Sequence[Manifest]) -> Problem | None:
    """Replace the manifest's volume claim templates, which are immutable, by the existing ones.

    Otherwise the API server would reject every other change too. Returns a warning if the spec asks
    for a different size or storage class.
    """
    wanted = manifest["spec"]["volumeClaimTemplates"]
    manifest["spec"]["volumeClaimTemplates"] = list(existing)
    if [_storage(template) for template in wanted] == [_storage(each) for each in existing]:
        return None
    sizes = ", ".join(each["spec"]["resources"]["requests"]["storage"] for each in existing)
    return Problem(
        reason=STORAGE_UNCHANGED,
        message=(
            f"the volume claims were created with {sizes} and keep that size: the operator does "
            "not resize existing volumes; if the storage class allows it, resize the claims by hand"
        ),
    )


def _storage(template: Manifest) -> tuple[int, str]:
    spec = template["spec"]
    size = quantity_bytes(spec["resources"]["requests"]["storage"])
    return size, spec.get("storageClassName") or ""
