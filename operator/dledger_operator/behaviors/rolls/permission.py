"""Decides whether the StatefulSet's pod template may change now. Pure.

A pod that is drained or lost is recreated from the template, so a change that is not permitted yet
must not reach it. If the StatefulSet is gone, the recorded template (`held_template`) counts. A
change of the spec is permitted by `spec.updatePolicy`. A change that only the operator brings,
since an upgrade gave it another default image or another template, always needs an approval: an
upgrade of the operator alone restarts no member.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dledger_formats import live_settings
from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import AppliedSpec, Manifest
from dledger_operator.held_template import TemplateInForce
from dledger_operator.problem import Problem
from dledger_operator.resources.seed import without_archive
from dledger_operator.resources.stateful_set import with_identity
from dledger_operator.resources.template_in_force import live_in_environment, reads_live_settings
from dledger_operator.spec.broker import changes_pods
from dledger_operator.spec.group import ON_APPROVAL, Group
from dledger_operator.spec.member_settings import without_live
from dledger_operator.spec.revision import Revision, digest
from dledger_operator.spec.shape import Shape

WAITING_FOR_APPROVAL: Final = "WaitingForApproval"
WAITING_FOR_WINDOW: Final = "WaitingForWindow"
_POD_FIELDS: Final = (
    "image", "log", "election", "resources", "scheduling", "podLabels", "podAnnotations",
    "restartedAt", "limits", "stateMachine", "appendsToFollowers", "imagePullSecrets", "env",
    "sidecars", "podSecurity",
)  # fmt: skip
"""The fields of the spec that pods are made of, with live settings, which are left out."""


class Cause(enum.StrEnum):
    """Why the template is to change."""

    SPEC = "Spec"
    OPERATOR = "Operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A revision that is not rolled out yet."""

    revision: Revision
    cause: Cause
    problem: Problem
    """What the roll waits for."""


def approved_revision(body: Mapping[str, Any]) -> str:
    """Return the revision that a person has approved; empty if none."""
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(names.APPROVED_REVISION_ANNOTATION, ""))


def applied_spec(body: Mapping[str, Any]) -> AppliedSpec:
    """Return the record of a spec. Nothing that the operator adds is part of it."""
    metadata, spec = body["metadata"], without_live(body.get("spec") or {})
    fields: dict[str, Any] = {field: spec[field] for field in _POD_FIELDS if field in spec}
    if isinstance(broker := spec.get("broker"), dict):
        fields["broker"] = changes_pods(broker)
    if (spec.get("adminToken") or {}).get("required") is False:
        fields["adminToken"] = False  # the rest of it changes no pod
    return AppliedSpec(
        generation=metadata.get("generation", 1),
        digest=digest(fields),
        uid=metadata.get("uid", ""),
    )


def find_held(
    group: Group,
    wanted: Revision,
    spec: AppliedSpec,
    in_force: TemplateInForce | None,
    *,
    founding: bool,
    approved: str,
    now: datetime,
) -> Held | None:
    """Return the wanted revision if it must not be applied yet; None if it may be.

    `spec` is the current spec as it would be recorded; `in_force` is the template in force, None if
    it is not known. A group that is being founded runs nothing
    that could be disturbed.
    """
    if in_force is None or founding or in_force.revision == wanted:
        return None
    if approved == wanted.name:
        return None
    cause = _cause(spec, in_force.applied_spec)
    if _only_new_pods_take_settings(group, in_force.template):
        cause = Cause.SPEC
    if cause is Cause.OPERATOR or group.update_policy == ON_APPROVAL:
        return Held(revision=wanted, cause=cause, problem=_waits(group, wanted, cause))
    closed = closed_window(group, wanted, approved=approved, now=now)
    return Held(revision=wanted, cause=cause, problem=closed) if closed else None


def _only_new_pods_take_settings(group: Group, template: Manifest) -> bool:
    """Return whether the spec asks for a live setting that pods of an older release cannot take."""
    if not reads_live_settings(template):
        return bool(group.live_settings)
    wanted = live_settings.in_force(group.node_settings(Shape.of_new(group.replicas)))
    return any(wanted[name] != value for name, value in live_in_environment(template).items())


def closed_window(
    group: Group, wanted: Revision, *, approved: str, now: datetime
) -> Problem | None:
    """Return why no pod may be replaced for a change of the spec now; None if one may be.

    A roll that the end of a window interrupts continues in the next one. An approval opens the
    window for one revision, for example a corrected one.
    """
    window = group.update_window
    if window is None or approved == wanted.name or window.closes_at(now):
        return None
    opens = names.timestamp(window.opens_at(now))
    message = (
        f"spec.updateWindow opens at {opens}; to go on sooner: kubectl annotate dlg {group.name} "
        f"--overwrite {names.APPROVED_REVISION_ANNOTATION}={wanted.name}"
    )
    return Problem(reason=WAITING_FOR_WINDOW, message=message)


def keep_pod_template(
    manifest: Manifest, in_force: TemplateInForce, shape: Shape, held: Held
) -> None:
    """Replace the manifest's pod template with the one that stays in force.

    Only the group's identity is added, once it is known, and the archive is removed once the group
    has begun. As long as a change of the spec is held, the record of the applied spec stays as it
    was.
    """
    template = with_identity(in_force.template, shape)
    has_begun = shape.state is GroupState.EXISTING
    manifest["spec"]["template"] = without_archive(template) if has_begun else template
    if held.cause is Cause.SPEC and in_force.applied_spec:
        record = in_force.applied_spec.to_text()
        manifest["metadata"]["annotations"][names.APPLIED_SPEC_ANNOTATION] = record


def _cause(now: AppliedSpec, before: AppliedSpec | None) -> Cause:
    """Distinguish a change of the spec from one that only the operator brings.

    A new version of the CRD may add defaults to the spec, so its digest counts only if the object's
    generation has changed too, or if it is another object of that name.
    """
    if before is None or now.digest == before.digest:
        return Cause.OPERATOR
    is_same_object = before.uid in ("", now.uid)
    if is_same_object and now.generation == before.generation:
        return Cause.OPERATOR
    return Cause.SPEC


def _waits(group: Group, wanted: Revision, cause: Cause) -> Problem:
    why = (
        "spec.updatePolicy is OnApproval"
        if cause is Cause.SPEC
        else "only the operator has changed, which restarts no member by itself"
    )
    return Problem(
        reason=WAITING_FOR_APPROVAL,
        message=(
            f"{why}; to roll out the plan: kubectl annotate dlg {group.name} --overwrite "
            f"{names.APPROVED_REVISION_ANNOTATION}={wanted.name}"
        ),
    )
