"""The volume claim templates of an existing StatefulSet, which are immutable. Pure."""

from collections.abc import Sequence

from dledger_operator.api_objects import Manifest


def keep_volume_claim_templates(manifest: Manifest, existing: Sequence[Manifest]) -> None:
    """Replace the manifest's volume claim templates, which are immutable, by the existing ones.

    Otherwise the API server would reject every other change too. A claim that is made of them later
    is grown to the size of the spec as soon as it is bound (`growth`).
    """
    manifest["spec"]["volumeClaimTemplates"] = list(existing)
