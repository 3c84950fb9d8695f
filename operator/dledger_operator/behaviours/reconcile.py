"""Makes the objects that a group consists of, and makes them again when somebody changes them."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dledger_operator.group import Group, ImageDefaults
from dledger_operator.kube.errors import RefusedError
from dledger_operator.quantities import quantity_bytes
from dledger_operator.resources import children
from dledger_operator.spec_reader import InvalidSpecError
from dledger_operator.views import Manifest, Trouble

logger = logging.getLogger(__name__)

INVALID_SPEC: Final = "InvalidSpec"
CHILD_REFUSED: Final = "ChildRefused"
STORAGE_UNCHANGED: Final = "StorageUnchanged"


class ChildrenApi(Protocol):
    """What this behaviour asks of the API server."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or change an object; RefusedError when the server will never take it."""

    async def volume_claim_templates(
        self, namespace: str, stateful_set: str
    ) -> list[Manifest] | None:
        """The part of a StatefulSet that can never change; None when there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The outcome: which spec was looked at, and what could not be done."""

    generation: int = 0
    group: Group | None = None
    """None when the spec could not be read."""
    problem: Trouble | None = None
    """The spec is not what runs."""
    warning: Trouble | None = None
    """The spec runs but for this."""


async def reconcile(api: ChildrenApi, body: Mapping[str, Any], images: ImageDefaults) -> Reconciled:
    """Apply every child; a spec that cannot be read changes nothing."""
    generation = body["metadata"].get("generation", 1)
    try:
        group = Group.from_body(body, images)
    except InvalidSpecError as error:
        invalid = Trouble(reason=INVALID_SPEC, message=f"{error}; nothing was changed")
        return Reconciled(generation=generation, problem=invalid)
    if group.paused:
        return Reconciled(generation=generation, group=group)
    problem: Trouble | None = None
    warning: Trouble | None = None
    for manifest in children.build(group):
        if manifest["kind"] == "StatefulSet":
            existing = await api.volume_claim_templates(
                group.namespace, manifest["metadata"]["name"]
            )
            warning = keep_volume_claim_templates(manifest, existing)
        try:
            await api.apply(manifest)
        except RefusedError as error:
            # The others may still be right: a bad annotation must not keep a Service from the pods.
            logger.warning("%s/%s: %s", group.namespace, group.name, error)
            problem = problem or Trouble(reason=CHILD_REFUSED, message=str(error))
    return Reconciled(generation=generation, group=group, problem=problem, warning=warning)


def keep_volume_claim_templates(
    manifest: Manifest, existing: list[Manifest] | None
) -> Trouble | None:
    """Put what a StatefulSet has already in the place of what it would refuse to change.

    Without this, one difference would keep every other change from it. Returns a warning when the
    difference is one that the user asked for.
    """
    if existing is None:
        return None
    wanted = manifest["spec"]["volumeClaimTemplates"]
    manifest["spec"]["volumeClaimTemplates"] = existing
    if [_storage(template) for template in wanted] == [_storage(each) for each in existing]:
        return None
    sizes = ", ".join(each["spec"]["resources"]["requests"]["storage"] for each in existing)
    return Trouble(
        reason=STORAGE_UNCHANGED,
        message=(
            f"the volumes were made with {sizes} and stay so: this version does not change volumes "
            "that exist; enlarge their claims by hand where the storage class allows it"
        ),
    )


def _storage(template: Manifest) -> tuple[int, str]:
    spec = template["spec"]
    size = quantity_bytes(spec["resources"]["requests"]["storage"])
    return size, spec.get("storageClassName") or ""
