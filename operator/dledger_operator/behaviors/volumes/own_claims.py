"""Makes a group own its volume claims, or not, as its spec says (`claim_owners`), and corrects what
they record of a founding that another one has superseded (`founding.founded_again`).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.behaviors.child_refused import child_refused
from dledger_operator.behaviors.volumes.claim_owners import owner_references
from dledger_operator.clients.errors import ConflictError, NotFoundError, RefusedError
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

logger = logging.getLogger(__name__)


class OwnersApi(Protocol):
    """The API request of this behavior."""

    async def set_claim_owners(
        self, claim: VolumeClaimView, owners: Sequence[Mapping[str, Any]]
    ) -> None:
        """Replace the owner references of a claim. Raises ConflictError if it has changed."""

    async def correct_first_voters(self, claim: VolumeClaimView, first_voters: int) -> None:
        """Record another number of first voters. Raises ConflictError if the claim has changed."""


async def own_claims(
    api: OwnersApi, group: Group, existing: Sequence[VolumeClaimView], shape: Shape
) -> Problem | None:
    """Make the group own its volume claims, or not, as `storage.retain.whenDeleted` says, and give
    those that record a superseded number of first voters the right one.

    A claim that was changed or deleted meanwhile is handled the next time. Returns the problem
    of a refusal, which must not keep the operator from anything else.
    """
    problem, superseded = None, shape.superseded - {shape.first_voters}
    for claim in existing:
        owners = owner_references(claim, group)
        try:
            if owners is not None:
                await api.set_claim_owners(claim, owners)
            elif claim.first_voters in superseded and not claim.leaving:
                await api.correct_first_voters(claim, shape.first_voters)
        except (NotFoundError, ConflictError) as error:
            logger.info("%s/%s: %s", group.namespace, group.name, error)
        except RefusedError as error:
            problem = child_refused(group, error)
    return problem
