"""The default images from the operator's settings. Imports no library, since `--help` reads it."""

from dataclasses import dataclass
from typing import Final

IMAGE_PULL_POLICIES: Final = ("IfNotPresent", "Always", "Never")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDefaults:
    """The operator's default image, used for the parts of an image that a spec leaves empty, and
    the namespace of the operator.
    """

    reference: str
    """Repository, followed by :tag or @digest."""
    pull_policy: str
    operator_namespace: str = ""
    """Namespace of the operator's pods; empty if groups are to have no NetworkPolicies."""
