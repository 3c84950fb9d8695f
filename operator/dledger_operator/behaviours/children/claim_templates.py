"""The volume claim templates of an existing StatefulSet, which are immutable. Pure."""

from collections.abc import Sequence

from dledger_operator.api_objects import Manifest


def keep_volume_claim_templates(manifest: Manifest, existing: Sequence[Manifest]) -> None:
    """Replace the manifest's volume claim templates, which are immutable, by the existing ones.

    Otherwise the API server would reject every other change too. `recreation` makes the StatefulSet
    again if they are too small; a claim that is made of them meanwhile is grown (`growth`).
    """
    manifest["spec"]["volumeClaimTemplates"] = list(existing)
