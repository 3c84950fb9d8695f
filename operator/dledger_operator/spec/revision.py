"""A revision: what a member's pod is built from, part by part. An annotation of the pod holds it.

The operator compares revisions, never pod specs: the API server fills in defaults, and admission
changes specs.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

IMAGE: Final = "image"
FLUSH: Final = "flush"
SETTINGS: Final = "settings"
RESOURCES: Final = "resources"
RESTART: Final = "restart"
TEMPLATE: Final = "template"
SHOWN: Final = (IMAGE, FLUSH)
"""The parts whose values are readable. The values of the others are digests."""
TEXT_LENGTH_MAX: Final = 4096
NAME_LENGTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The value of each part."""

    parts: Mapping[str, str]

    @property
    def name(self) -> str:
        """A short name, different for each revision."""
        return digest(self.parts)

    def to_text(self) -> str:
        """Write the annotation's value."""
        return json.dumps(self.parts, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read an annotation's value; None if it is missing or not in this form."""
        try:
            parts = json.loads(text) if len(text) <= TEXT_LENGTH_MAX else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(parts, dict) or not all(isinstance(each, str) for each in parts.values()):
            return None
        return cls(parts=parts)


def digest(value: object) -> str:
    """Return a short digest of a JSON value."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:NAME_LENGTH]


def why_behind(runs: Revision | None, wanted: Revision | None) -> str:
    """Return the parts in which a pod differs from the wanted revision; empty if in none.

    A pod without a revision was made by an earlier release of the operator.
    """
    before, after = (each.parts if each else {} for each in (runs, wanted))
    if not before and after:
        return "made by an earlier release of the operator"
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return ", ".join(
        f"{name} {before.get(name)} to {after.get(name)}" if name in SHOWN else name
        for name in changed
    )
