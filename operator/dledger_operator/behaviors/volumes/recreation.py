"""Recreates a StatefulSet whose volume claim templates are too small, since they are immutable.

Its pods stay. The operator notes the replicas on the ConfigMap, then deletes the StatefulSet with
the policy Orphan, and the next reconciliation recreates it with the same pod template and the noted
replicas; its controller adopts the pods. If this is interrupted, the next reconciliation finds one
of three states: nothing has happened, the StatefulSet is leaving, or it is gone. Volume claims are
not touched, since the StatefulSet always retains them.

This waits while the StatefulSet has no pods: the group hibernates, and the templates are not needed
before it wakes. It also waits while a member's claim is being deleted: the member's pod is about to
be recreated, and a replacement sees no pods while there is no StatefulSet.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from dledger_operator import names
from dledger_operator.api_objects import Manifest, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.child_refused import child_refused
from dledger_operator.behaviors.founding.founding import FoundingRecords
from dledger_operator.clients.errors import ConflictError, NotFoundError, RefusedError
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group
from dledger_operator.spec.quantities import volume_bytes
from dledger_operator.spec.revision import Revision

logger = logging.getLogger(__name__)


class RecreationApi(Protocol):
    """The API requests of this behavior."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""

    async def note_replicas(self, namespace: str, config_map: str, note: str | None) -> None:
        """Write the note on the ConfigMap with a group's settings, or remove it."""

    async def orphan_stateful_set(self, stateful_set: StatefulSetView) -> None:
        """Delete a StatefulSet and leave its pods. Raises ConflictError if it has changed."""


async def recreate_if_outgrown(
    api: RecreationApi,
    group: Group,
    records: FoundingRecords,
    wanted: Revision,
    claims: Sequence[VolumeClaimView],
) -> Problem | None:
    """Delete the StatefulSet and leave its pods if its claim template is smaller than the spec, its
    pod template is the wanted one, it has pods, and no claim of theirs is being deleted. Remove
    the note of a StatefulSet that was recreated.

    Returns the problem of a refusal: the claims of new members are then made too small, and grow.
    """
    config_map = names.settings_config_map(group.name)
    if records.stateful_set is None or records.stateful_set.leaving:
        return None
    # The StatefulSet has just been applied, and scaling may have changed it.
    found = await api.stateful_set(group.namespace, names.stateful_set(group.name))
    if found is None or found.leaving:
        return None
    note = records.settings.note if records.settings else ""
    claim_leaves = any(each.leaving and 0 <= each.ordinal < found.replicas for each in claims)
    may_go = found.replicas > 0 and not claim_leaves
    try:
        if not (may_go and is_outgrown(group, found) and found.revision == wanted):
            if note:
                await api.note_replicas(group.namespace, config_map, None)
            return None
        await api.note_replicas(group.namespace, config_map, str(found.replicas))
        await api.orphan_stateful_set(found)
    except (ConflictError, NotFoundError) as error:
        logger.info("%s/%s: %s", group.namespace, group.name, error)
        return None
    except RefusedError as error:
        return child_refused(group, error)
    message = "%s/%s: the StatefulSet is made again, with volume claims of %s; its pods stay"
    logger.info(message, group.namespace, group.name, group.storage.size)
    return None


def keep_volume_claim_templates(manifest: Manifest, existing: Sequence[Manifest]) -> None:
    """Replace the manifest's volume claim templates, which are immutable, with the existing ones.

    Otherwise the API server would reject every other change too. A claim made from templates that
    are too small is grown (`growth`).
    """
    manifest["spec"]["volumeClaimTemplates"] = list(existing)


def is_outgrown(group: Group, stateful_set: StatefulSetView) -> bool:
    """Return whether new claims would be smaller than the spec asks for."""
    sizes = [
        template.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
        for template in stateful_set.volume_claim_templates
    ]
    try:
        return any(size and volume_bytes(size) < group.storage.size_bytes for size in sizes)
    except ValueError:
        return False
