"""Creates the children of a group, and repairs them after changes by other clients."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from dledger_formats.settings import GroupState
from dledger_operator import names, reasons
from dledger_operator.api_objects import ChildView, Manifest, VolumeClaimView
from dledger_operator.behaviors.child_refused import child_refused
from dledger_operator.behaviors.children import roles
from dledger_operator.behaviors.children.newest import newest
from dledger_operator.behaviors.children.ownership import NAME_TAKEN, foreign, name_taken, remains
from dledger_operator.behaviors.children.planned import CONFIG_MAP, STATEFUL_SET, Existing, planned
from dledger_operator.behaviors.children.policies import (
    PoliciesApi,
    drop_policies,
    needed,
)
from dledger_operator.behaviors.founding.founding import (
    FoundingRecords,
    blank_ordinals,
    find_shape,
)
from dledger_operator.behaviors.founding.founding_reads import (
    FoundingApi,
    in_the_way,
    read_founding_records,
)
from dledger_operator.behaviors.founding.identity import find_identity, overriding_identity
from dledger_operator.behaviors.founding.remains import WAITING_FOR_REMAINS, waiting_for
from dledger_operator.behaviors.rolls.permission import (
    Cause,
    Held,
    applied_spec,
    approved_revision,
    find_held,
)
from dledger_operator.behaviors.volumes.grow_claims import GrowthApi, grow_claims
from dledger_operator.behaviors.volumes.growth import VolumeUse, of_members
from dledger_operator.behaviors.volumes.own_claims import OwnersApi, own_claims
from dledger_operator.behaviors.volumes.recreation import RecreationApi, recreate_if_outgrown
from dledger_operator.clients.errors import (
    RefusedError,
)
from dledger_operator.held_template import HeldTemplate
from dledger_operator.problem import Problem
from dledger_operator.resources import children
from dledger_operator.spec.group import Group, Roles
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError


class ChildrenApi(FoundingApi, GrowthApi, OwnersApi, PoliciesApi, RecreationApi, Protocol):
    """The API requests of this behavior."""

    async def group(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Get a DLedgerGroup. Raises NotFoundError if it does not exist."""

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        """Get the metadata of an object; None if it does not exist."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or update an object. Raises RefusedError if it is invalid or forbidden."""

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
    wanted: Revision | None = None
    """The revision of pods that the spec asks for; None if it is not known."""
    in_force: Revision | None = None
    """The revision of the pods that the StatefulSet makes now; None if it is not known."""
    held: Held | None = None
    """A revision that must not be rolled out yet."""
    held_template: HeldTemplate | None = None
    """The template that stays in force until `held` is permitted."""
    not_live: frozenset[str] = frozenset()
    """The live settings that pods of an earlier release have in their environment until a roll."""
    problem: Problem | None = None
    """Why the spec is not in effect."""
    warning: Problem | None = None
    """A part of the spec that cannot be applied, although the rest was."""

    growth: Problem | None = None
    """What keeps a volume claim from the size that it should have."""

    @property
    def waits(self) -> bool:
        """Whether objects of others are in the way, whose deletion the operator does not see."""
        return self.problem is not None and self.problem.reason in (NAME_TAKEN, WAITING_FOR_REMAINS)


async def reconcile(
    api: ChildrenApi,
    body: Mapping[str, Any],
    images: ImageDefaults,
    *,
    led: bool,
    voters: int,
    now: datetime,
    reported: frozenset[str] | None = None,
    blank: frozenset[str] = frozenset(),
    use: Mapping[str, VolumeUse] = MappingProxyType({}),
) -> ReconcileResult:
    """Apply every child. Change nothing if the spec is invalid, the founding is unknown, or a
    foreign object has the name of a child.

    `led` says whether the group ever had a leader; `reported` is as in `find_identity`;
    `blank` names the volume claims whose members report that they hold nothing; `use` says how full
    volumes are, by claim. The replicas of an existing StatefulSet do not change here; scaling
    changes them. Raises GroupGoneError if the group is gone: its deletion may have been missed, and
    no child of a deleted group may be created.
    """
    body = await newest(api, body)
    generation = body["metadata"].get("generation", 1)
    try:
        group = Group.from_body(body, images)
    except InvalidSpecError as error:
        invalid = Problem(reason=reasons.INVALID_SPEC, message=f"{error}; nothing was changed")
        return ReconcileResult(generation=generation, problem=invalid)
    if group.paused:
        wanted = await _wanted_while_paused(api, group, body, now)
        return ReconcileResult(generation=generation, group=group, wanted=wanted)
    found = await _find_children(api, group)
    if problem := _obstacle(found.values(), group):
        return ReconcileResult(generation=generation, group=group, problem=problem)
    claims = await api.volume_claims(group.namespace, group.name)
    records = await read_founding_records(api, group, body.get("status") or {}, claims)
    shape = await in_the_way(api, group, records, led=led) or find_shape(
        group, records, led=led, voters=voters, blank=blank_ordinals(claims, blank)
    )
    if isinstance(shape, Problem):
        return ReconcileResult(generation=generation, group=group, problem=shape)
    identity = find_identity(group, records, override=overriding_identity(body), reported=reported)
    if isinstance(identity, Problem):
        return ReconcileResult(generation=generation, group=group, problem=identity)
    shape = replace(shape, identity=identity)
    # First: a child that cannot be applied must not keep a full volume from growing. Nor must a
    # claim that cannot be changed keep the children as they are.
    (growth,) = await asyncio.gather(
        grow_claims(api, group, of_members(claims, group, shape), use, now), return_exceptions=True
    )
    existing = _existing(body, group, shape, found, records, now)
    applied = await _apply_children(api, group, shape, existing)
    kept = await drop_policies(api, group, found.values())
    refused = await own_claims(api, group, claims, shape) or kept
    if isinstance(growth, BaseException):
        raise growth
    stalled = growth if growth and growth.reason == reasons.STALLED else None
    warning = refused or stalled
    if not (existing.held or applied.problem or stalled) and shape.state is GroupState.EXISTING:
        wanted = children.revision(group, shape)
        warning = await recreate_if_outgrown(api, group, records, wanted, claims) or warning
    return replace(applied, generation=generation, group=group, warning=warning, growth=growth)


def _existing(
    body: Mapping[str, Any],
    group: Group,
    shape: Shape,
    found: Mapping[tuple[str, str], ChildView],
    records: FoundingRecords,
    now: datetime,
) -> Existing:
    """Return what exists of a group, with the revision that must wait."""
    spec = applied_spec(body)
    in_force = records.stateful_set or HeldTemplate.from_status(body.get("status") or {})
    held = find_held(
        group,
        children.revision(group, shape),
        spec,
        in_force,
        founding=shape.state is GroupState.NEW,
        approved=approved_revision(body),
        now=now,
    )
    return Existing(found=found, records=records, spec=spec, held=held, in_force=in_force)


async def _wanted_while_paused(
    api: ChildrenApi, group: Group, body: Mapping[str, Any], now: datetime
) -> Revision | None:
    """Return the revision that a paused spec asks for; None if there is no StatefulSet."""
    existing = await api.stateful_set(group.namespace, names.stateful_set(group.name))
    if existing is None or existing.first_voters not in names.REPLICAS_ALLOWED:
        return None  # somebody has changed the annotation; this is reported once the pause ends
    shape = Shape.of_new(existing.first_voters)
    wanted, spec = children.revision(group, shape), applied_spec(body)
    held = find_held(group, wanted, spec, existing, founding=False, approved="", now=now)
    return existing.revision if held and held.cause is Cause.OPERATOR else wanted


async def _find_children(api: ChildrenApi, group: Group) -> dict[tuple[str, str], ChildView]:
    """Return the existing objects with the names of the children, by kind and name."""
    identities = children.identities(group)
    found = await asyncio.gather(
        *(api.child(kind, group.namespace, name) for kind, name in identities)
    )
    return {(each.kind, each.name): each for each in needed(found, group)}


def _obstacle(found: Iterable[ChildView], group: Group) -> Problem | None:
    """Return why no child may be applied at all.

    A group that has its StatefulSet does without other children whose names are taken, except
    the ConfigMap.
    """
    if remaining := remains(found, group):
        return waiting_for(remaining)
    taken = foreign(found, group)
    made = any(each.kind == STATEFUL_SET for each in found if each not in taken)
    if taken and (not made or any(each.kind == CONFIG_MAP for each in taken)):
        return name_taken(taken, changed="nothing was created or changed")
    return None


async def _apply_children(
    api: ChildrenApi, group: Group, shape: Shape, existing: Existing
) -> ReconcileResult:
    """Apply what is planned, one after the other, in this order."""
    found = existing.found
    in_force = roles.roles_in_force(found.get(_master_service(group)), group)
    group = replace(group, roles=roles.to_apply(group, in_force))
    problem = await _role_conflict(api, group, in_force)
    kept = _client_services(group) if problem else ()
    if taken := foreign(found.values(), group):
        problem = name_taken(taken, changed="they were left alone")
    for manifest in planned(group, shape, existing):
        if manifest["metadata"]["name"] in kept:
            continue
        refusal = await _refusal(api, group, manifest)
        if refusal is None:
            continue
        # Apply the others: an invalid annotation of one Service must not block the pods.
        problem = problem or refusal
        if roles.differ(group.roles, in_force):
            kept = _client_services(group)  # they must not select by different roles
        if manifest["kind"] == CONFIG_MAP:
            # The ConfigMap records that the group is new. A StatefulSet without that record would
            # be mistaken for an existing group's.
            return ReconcileResult(problem=problem)
    return _applied(group, shape, existing, problem)


async def _refusal(api: ChildrenApi, group: Group, manifest: Manifest) -> Problem | None:
    """Apply a child; return why the API server refuses it, None if it does not."""
    try:
        await api.apply(manifest)
    except RefusedError as error:
        return child_refused(group, error)
    return None


def _applied(
    group: Group, shape: Shape, existing: Existing, problem: Problem | None
) -> ReconcileResult:
    """Return the outcome once every child was tried."""
    held, in_force = existing.held, existing.in_force
    wanted: Revision | None = children.revision(group, shape)
    made_now = in_force.revision if held and in_force else wanted
    if held and held.cause is Cause.OPERATOR:
        wanted = made_now
    return ReconcileResult(
        shape=shape,
        wanted=wanted,
        in_force=made_now,
        held=held,
        held_template=HeldTemplate.of(in_force) if held and in_force else None,
        not_live=existing.not_live,
        problem=problem,
    )


async def _role_conflict(api: ChildrenApi, group: Group, in_force: Roles) -> Problem | None:
    if not roles.differ(group.roles, in_force):
        return None
    pods = await api.member_pods(group.namespace, group.name)
    return roles.conflict(group.roles, in_force, pods)


def _master_service(group: Group) -> tuple[str, str]:
    return ("Service", names.master_service(group.name))


def _client_services(group: Group) -> tuple[str, str]:
    return (names.master_service(group.name), names.slave_service(group.name))
