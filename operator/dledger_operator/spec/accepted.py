"""The choices of the last accepted spec, which stay in force while the spec is refused. Pure.

A mistake in one key must not leave the Services pointed at a dead leader, wake a group that
hibernates, or stop what watches the group. The group's status records the choices, so an operator
that starts while the spec is refused knows them.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.spec_reader import InvalidSpecError

ACCEPTED_KEY: Final = "acceptedSpec"
CHOICES_LENGTH_MAX: Final = 65_536
"""The maxLength of the choices in the CustomResourceDefinition."""
NEEDED: Final = ("replicas", "roles")
"""The keys of a spec without which no leader can be followed."""
KEPT: Final = (
    *NEEDED, "hibernate", "preferredLeader", "adminToken", "audit", "broker", "canary",
)  # fmt: skip
"""The keys whose accepted values stay in force. `replicas` comes first: others depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSpec:
    """The choices of the last spec that was valid."""

    generation: int
    choices: Mapping[str, Any]
    """The keys of `KEPT` that the spec set, as in the object."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Return the choices of an object whose spec is valid."""
        spec = body.get("spec") or {}
        generation = body["metadata"].get("generation", 1)
        return cls(generation=generation, choices={key: spec[key] for key in KEPT if key in spec})

    @classmethod
    def recorded(cls, status: Mapping[str, Any]) -> Self | None:
        """Return what a group's status records; None if there is nothing, or nothing valid."""
        record: Any = status.get(ACCEPTED_KEY)
        try:
            generation, choices = record["generation"], json.loads(record["choices"])
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        if not isinstance(generation, int) or not isinstance(choices, dict):
            return None
        return cls(
            generation=generation, choices={key: choices[key] for key in KEPT if key in choices}
        )

    def to_json(self) -> dict[str, Any] | None:
        """Encode the choices for the group's status; None if they are too long for it.

        The API server would refuse the whole status. The choices are then known until a restart.
        """
        choices = json.dumps(
            self.choices, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        if len(choices) > CHOICES_LENGTH_MAX:
            return None
        return {"generation": self.generation, "choices": choices}


def read_spec(
    body: Mapping[str, Any], images: ImageDefaults, accepted: AcceptedSpec | None
) -> tuple[Group | None, AcceptedSpec | None]:
    """Return what `read_group` returns, and what is accepted now."""
    group = read_group(body, images, accepted)
    return group, AcceptedSpec.of(body) if group and not group.is_partial else accepted


def newer(first: AcceptedSpec | None, second: AcceptedSpec | None) -> AcceptedSpec | None:
    """Return what was accepted later; `first` if both are of one generation."""
    if first is None or second is None:
        return first or second
    return second if second.generation > first.generation else first


def read_group(
    body: Mapping[str, Any], images: ImageDefaults, accepted: AcceptedSpec | None
) -> Group | None:
    """Parse a group's spec. If it is invalid, return what stays in force, which is partial.

    That is the `accepted` choices or, if they are not known, all valid choices of the spec. None
    if even the keys that are needed to follow the leader are invalid.
    """
    with contextlib.suppress(InvalidSpecError):
        return Group.from_body(body, images)
    if accepted is not None:
        with contextlib.suppress(InvalidSpecError):
            return _partial(body, accepted.choices, images)
    with contextlib.suppress(InvalidSpecError):
        return _valid_choices(body, images)
    return None


def _valid_choices(body: Mapping[str, Any], images: ImageDefaults) -> Group:
    spec = body.get("spec") or {}
    choices = {key: spec[key] for key in NEEDED if key in spec}
    group = _partial(body, choices, images)
    for key in KEPT:
        more = {**choices, key: spec.get(key)}
        with contextlib.suppress(InvalidSpecError):
            group, choices = _partial(body, more, images), more
    return group


def _partial(body: Mapping[str, Any], choices: Mapping[str, Any], images: ImageDefaults) -> Group:
    """Parse only `choices`, with the object's current `paused`: a user who pauses the operator must
    not have to correct the spec first.
    """
    paused = (body.get("spec") or {}).get("paused") not in (None, False)
    storage = {"size": "1Gi"}  # required by `from_body`, unused while the spec is refused
    spec = {**choices, "storage": storage, "paused": paused}
    return replace(Group.from_body({**body, "spec": spec}, images), is_partial=True)
