"""Makes the objects that a group consists of, and makes them again when somebody changes them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dledger_operator import names
from dledger_operator.behaviours.children.founding import Traces, find_shape
from dledger_operator.clients.errors import ConflictError, RefusedError
from dledger_operator.resources import children
from dledger_operator.spec.group import Group, ImageDefaults
from dledger_operator.spec.quantities import quantity_bytes
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError
from dledger_operator.views import Manifest, SettingsView, StatefulSetView, Trouble, VolumeView

logger = logging.getLogger(__name__)

INVALID_SPEC: Final = "InvalidSpec"
CHILD_REFUSED: Final = "ChildRefused"
STORAGE_UNCHANGED: Final = "StorageUnchanged"


class ChildrenApi(Protocol):
    """What this behaviour asks of the API server."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or change an object; RefusedError when the server will never take it."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """A group's StatefulSet; None when there is none."""

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """The ConfigMap with a group's settings; None when there is none."""

    async def volumes(self, namespace: str, group: str) -> list[VolumeView]:
        """A group's volume claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The outcome: which spec was looked at, and what could not be done."""

    generation: int = 0
    group: Group | None = None
    """None when the spec could not be read."""
    shape: Shape | None = None
    """None when nothing was applied."""
    problem: Trouble | None = None
    """The spec is not what runs."""
    warning: Trouble | None = None
    """The spec runs but for this."""


async def reconcile(
    api: ChildrenApi, body: Mapping[str, Any], images: ImageDefaults, *, led: bool, voters: int
) -> Reconciled:
    """Apply every child; a spec that cannot be read changes nothing, nor does a group of which it
    is not sure how it was founded.

    `led` says whether the group ever had a leader. How many pods the StatefulSet has is not changed
    here.
    """
    generation = body["metadata"].get("generation", 1)
    try:
        group = Group.from_body(body, images)
    except InvalidSpecError as error:
        invalid = Trouble(reason=INVALID_SPEC, message=f"{error}; nothing was changed")
        return Reconciled(generation=generation, problem=invalid)
    if group.paused:
        return Reconciled(generation=generation, group=group)
    traces = await find_traces(api, group, body.get("status") or {})
    shape = find_shape(group, traces, led=led, voters=voters)
    if isinstance(shape, Trouble):
        return Reconciled(generation=generation, group=group, problem=shape)
    problem: Trouble | None = None
    warning: Trouble | None = None
    for manifest in children.build(group, shape):
        if manifest["kind"] == "StatefulSet" and traces.stateful_set:
            # Between a look and a write, its replicas may be changed.
            manifest["metadata"]["resourceVersion"] = traces.stateful_set.resource_version
            warning = keep_volume_claim_templates(
                manifest, traces.stateful_set.volume_claim_templates
            )
        try:
            await api.apply(manifest)
        except RefusedError as error:
            # The others may still be right: a bad annotation must not keep a Service from the pods.
            logger.warning("%s/%s: %s", group.namespace, group.name, error)
            problem = problem or Trouble(reason=CHILD_REFUSED, message=str(error))
            if manifest["kind"] == "ConfigMap":
                # It tells that the group is new. What is made without it would tell the contrary.
                return Reconciled(generation=generation, group=group, problem=problem)
    return Reconciled(
        generation=generation, group=group, shape=shape, problem=problem, warning=warning
    )


async def find_traces(api: ChildrenApi, group: Group, status: Mapping[str, Any]) -> Traces:
    """Look what there is of a group; at its volume claims only if something is missing.

    ConflictError while objects of a deleted group of the same name have yet to go: they tell
    nothing of this one.
    """
    settings = await api.settings(group.namespace, names.settings_config_map(group.name))
    stateful_set = await api.stateful_set(group.namespace, names.stateful_set(group.name))
    whole = settings is not None and stateful_set is not None
    claims = [] if whole else await api.volumes(group.namespace, group.name)
    claims = [claim for claim in claims if claim.ordinal >= 0]
    going = [f"volume claim {claim.name}" for claim in claims if claim.leaving]
    for kind, left in (("ConfigMap", settings), ("StatefulSet", stateful_set)):
        if left and left.owner_uid not in ("", group.uid):
            going.append(f"{kind} of a group of the same name that was deleted")
    if going:
        raise ConflictError(
            f"{group.namespace}/{group.name}: waits until the {' and the '.join(going)} is gone"
        )
    return Traces(settings=settings, stateful_set=stateful_set, claims=claims, status=status)


def keep_volume_claim_templates(manifest: Manifest, existing: Sequence[Manifest]) -> Trouble | None:
    """Put what a StatefulSet has already in the place of what it would refuse to change.

    Without this, one difference would keep every other change from it. Returns a warning when the
    difference is one that the user asked for.
    """
    wanted = manifest["spec"]["volumeClaimTemplates"]
    manifest["spec"]["volumeClaimTemplates"] = list(existing)
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
