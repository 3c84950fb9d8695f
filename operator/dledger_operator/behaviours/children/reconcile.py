"""Creates the children of a group, and repairs them after changes by other clients."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dledger_operator import names
from dledger_operator.api_objects import (
    Manifest,
    Problem,
    SettingsView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviours.children.founding import FoundingRecords, find_shape
from dledger_operator.clients.errors import ConflictError, RefusedError
from dledger_operator.resources import children
from dledger_operator.spec.group import Group, ImageDefaults
from dledger_operator.spec.quantities import quantity_bytes
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

logger = logging.getLogger(__name__)

INVALID_SPEC: Final = "InvalidSpec"
CHILD_REFUSED: Final = "ChildRefused"
STORAGE_UNCHANGED: Final = "StorageUnchanged"


class ChildrenApi(Protocol):
    """The API requests of this behavior."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or update an object. Raises RefusedError if it is invalid or forbidden."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """Get the ConfigMap with a group's settings; None if it does not exist."""

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List a group's volume claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """The outcome of reconciling one generation of a group's spec."""

    generation: int = 0
    group: Group | None = None
    """The parsed spec; None if it is invalid."""
    shape: Shape | None = None
    """The shape that was applied; None if nothing was."""
    problem: Problem | None = None
    """Why the spec is not in effect."""
    warning: Problem | None = None
    """A part of the spec that cannot be applied, although the rest was."""


async def reconcile(
    api: ChildrenApi, body: Mapping[str, Any], images: ImageDefaults, *, led: bool, voters: int
) -> ReconcileResult:
    """Apply every child. An invalid spec or an unknown founding changes nothing.

    `led` says whether the group ever had a leader. The replicas of an existing StatefulSet do not
    change here; scaling changes them.
    """
    generation = body["metadata"].get("generation", 1)
    try:
        group = Group.from_body(body, images)
    except InvalidSpecError as error:
        invalid = Problem(reason=INVALID_SPEC, message=f"{error}; nothing was changed")
        return ReconcileResult(generation=generation, problem=invalid)
    if group.paused:
        return ReconcileResult(generation=generation, group=group)
    records = await read_founding_records(api, group, body.get("status") or {})
    shape = find_shape(group, records, led=led, voters=voters)
    if isinstance(shape, Problem):
        return ReconcileResult(generation=generation, group=group, problem=shape)
    problem: Problem | None = None
    warning: Problem | None = None
    for manifest in children.build(group, shape):
        if manifest["kind"] == "StatefulSet" and records.stateful_set:
            # Scaling may have changed the replicas since they were read; the apply then conflicts.
            manifest["metadata"]["resourceVersion"] = records.stateful_set.resource_version
            warning = keep_volume_claim_templates(
                manifest, records.stateful_set.volume_claim_templates
            )
        try:
            await api.apply(manifest)
        except RefusedError as error:
            # Apply the others: an invalid annotation of one Service must not block the pods.
            logger.warning("%s/%s: %s", group.namespace, group.name, error)
            problem = problem or Problem(reason=CHILD_REFUSED, message=str(error))
            if manifest["kind"] == "ConfigMap":
                # The ConfigMap records that the group is new. A StatefulSet without that record
                # would be mistaken for an existing group's.
                return ReconcileResult(generation=generation, group=group, problem=problem)
    return ReconcileResult(
        generation=generation, group=group, shape=shape, problem=problem, warning=warning
    )


async def read_founding_records(
    api: ChildrenApi, group: Group, status: Mapping[str, Any]
) -> FoundingRecords:
    """Read the objects that record a group's founding; volume claims only if another is missing.

    Raises ConflictError while objects of a deleted group of the same name still exist: their
    records are not this group's.
    """
    settings = await api.settings(group.namespace, names.settings_config_map(group.name))
    stateful_set = await api.stateful_set(group.namespace, names.stateful_set(group.name))
    complete = settings is not None and stateful_set is not None
    claims = [] if complete else await api.volume_claims(group.namespace, group.name)
    claims = [claim for claim in claims if claim.ordinal >= 0]
    leftovers = [f"volume claim {claim.name}" for claim in claims if claim.leaving]
    for kind, found in (("ConfigMap", settings), ("StatefulSet", stateful_set)):
        if found and found.owner_uid not in ("", group.uid):
            leftovers.append(f"the {kind} of a deleted group of the same name")
    if leftovers:
        raise ConflictError(
            f"{group.namespace}/{group.name}: waiting for the deletion of {', '.join(leftovers)}"
        )
    return FoundingRecords(
        settings=settings, stateful_set=stateful_set, claims=claims, status=status
    )


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
