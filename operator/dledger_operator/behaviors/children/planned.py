"""Decides which children of a group are applied, and what each of them is. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import AppliedSpec, ChildView, Manifest
from dledger_operator.behaviors.children.ownership import foreign
from dledger_operator.behaviors.children.policies import KIND as POLICY
from dledger_operator.behaviors.children.policies import wait_for_approval
from dledger_operator.behaviors.founding import founded_again
from dledger_operator.behaviors.founding.founding import FoundingRecords
from dledger_operator.behaviors.rolls.permission import Held, keep_pod_template
from dledger_operator.behaviors.volumes.recreation import keep_volume_claim_templates
from dledger_operator.held_template import TemplateInForce
from dledger_operator.resources import children
from dledger_operator.resources.template_in_force import live_in_environment
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

CONFIG_MAP: Final = "ConfigMap"
STATEFUL_SET: Final = "StatefulSet"
NO_VERSION: Final = "1"
"""No object has this version: an apply with it conflicts unless it creates the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """The existing objects of a group, and what of its spec may be rolled out now."""

    found: Mapping[tuple[str, str], ChildView]
    """The objects with the names of children, by kind and name, no matter who made them."""
    records: FoundingRecords
    spec: AppliedSpec
    """The spec that the children are made of."""
    held: Held | None
    """The revision that must not be rolled out yet; None if there is none."""
    in_force: TemplateInForce | None
    """The template that pods are created from: the StatefulSet's or, if it is gone, the recorded
    one; None if neither exists.
    """

    @property
    def not_live(self) -> frozenset[str]:
        """The live settings that pods of an earlier release have in their environment until a
        roll.
        """
        in_force = self.in_force
        return frozenset(live_in_environment(in_force.template) if self.held and in_force else ())


def planned(group: Group, shape: Shape, existing: Existing) -> list[Manifest]:
    """Return the children to apply, in the order in which they are applied."""
    left_alone = _left_alone(group, existing)
    manifests = [
        manifest
        for manifest in children.build(group, shape, existing.not_live)
        if _identity(manifest) not in left_alone
    ]
    for manifest in manifests:
        judged = existing.found.get(_identity(manifest))
        # Change only the object that was judged, or create one: never another object of that name.
        manifest["metadata"] |= {"uid": judged.uid} if judged else {"resourceVersion": NO_VERSION}
        if manifest["kind"] == CONFIG_MAP:
            _base_on(existing.records, manifest, group, shape)
        if manifest["kind"] == STATEFUL_SET:
            _keep_what_stays(existing, manifest, shape)
    return manifests


def _identity(manifest: Manifest) -> tuple[str, str]:
    return (manifest["kind"], manifest["metadata"]["name"])


def _left_alone(group: Group, existing: Existing) -> set[tuple[str, str]]:
    """Return the kinds and names of the children that are not applied now: names that others have
    taken, a StatefulSet that is being deleted, and policies that wait for an approval.
    """
    found = existing.found
    left_alone = {(each.kind, each.name) for each in foreign(found.values(), group)}
    made = existing.records.stateful_set
    if made is not None and made.leaving:
        left_alone.add((STATEFUL_SET, names.stateful_set(group.name)))
    if wait_for_approval(found.values(), group, existing.held):
        identities = children.identities(group)
        left_alone |= {each for each in identities if each[0] == POLICY and each not in found}
    return left_alone


def _base_on(records: FoundingRecords, manifest: Manifest, group: Group, shape: Shape) -> None:
    """Complete the ConfigMap with what was read from the existing one."""
    metadata, settings, made = manifest["metadata"], records.settings, records.stateful_set
    if settings is not None:
        # Pods of an earlier release read all their settings from it when they restart.
        manifest["data"] = {**settings.data, **manifest["data"]}
        # A founding may have been recorded since (`founded_again`); the apply then conflicts.
        if shape.state is GroupState.NEW and settings.resource_version and "uid" in metadata:
            metadata["resourceVersion"] = settings.resource_version
    uid, known = (each or "" for each in (made and made.uid, settings and settings.stateful_set))
    again = founded_again.applies(group.replicas, shape)
    if named := founded_again.fence(uid, known, again=again):
        metadata["annotations"] = {names.STATEFUL_SET_ANNOTATION: named}


def _keep_what_stays(existing: Existing, manifest: Manifest, shape: Shape) -> None:
    """Complete the StatefulSet with what must stay as it is."""
    annotations = manifest["metadata"]["annotations"]
    annotations[names.APPLIED_SPEC_ANNOTATION] = existing.spec.to_text()
    if existing.held and existing.in_force:
        keep_pod_template(manifest, existing.in_force, shape, existing.held)
    made = existing.records.stateful_set
    if made is None:
        return
    # Scaling may have changed the replicas since they were read; the apply then conflicts.
    manifest["metadata"]["resourceVersion"] = made.resource_version
    keep_volume_claim_templates(manifest, made.volume_claim_templates)
