"""The pod template that stays in force while a change of it waits, as the group's status keeps it.

The StatefulSet has the template. If somebody deletes the StatefulSet while a change waits, the
operator creates it again from this record, so the change still reaches no pod. The status is a
safe place: who may write a ConfigMap, or the spec, cannot write it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from dledger_operator import names
from dledger_operator.api_objects import AppliedSpec, Manifest
from dledger_operator.spec.revision import Revision

HELD_TEMPLATE_KEY: Final = "heldTemplate"


class TemplateInForce(Protocol):
    """The template that pods are created from: a StatefulSet's, or the recorded one."""

    @property
    def template(self) -> Manifest:
        """The pod template."""

    @property
    def revision(self) -> Revision | None:
        """The revision of its pods; None for a template of an earlier release."""

    @property
    def applied_spec(self) -> AppliedSpec | None:
        """The spec that it was built from; None if an earlier release did not record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTemplate:
    """The record of a template."""

    template: Manifest
    revision: Revision | None
    applied_spec: AppliedSpec | None

    @classmethod
    def of(cls, in_force: TemplateInForce) -> Self:
        """Return the record of a template in force."""
        return cls(
            template=in_force.template,
            revision=in_force.revision,
            applied_spec=in_force.applied_spec,
        )

    def to_json(self) -> Manifest:
        """Return the field of the status. The template is text, which `kubectl describe` prints
        in one line.
        """
        spec = self.applied_spec
        return {
            "template": json.dumps(self.template, sort_keys=True),
            **({"appliedSpec": spec.to_text()} if spec else {}),
        }

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Self | None:
        """Read the record; None if a group's status has none, or one that is not in this form."""
        recorded = status.get(HELD_TEMPLATE_KEY) or {}
        try:
            template = json.loads(recorded.get("template") or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            return None
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        return cls(
            template=template,
            revision=Revision.from_text(annotations.get(names.REVISION_ANNOTATION, "")),
            applied_spec=AppliedSpec.from_text(recorded.get("appliedSpec") or ""),
        )
