"""Grows volume claims, one request for each, and reports what Kubernetes answers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.behaviors.volumes.growth import (
    VolumeUse,
    growth_problem,
    growths,
    refused,
)
from dledger_operator.clients.errors import ConflictError, NotFoundError, RefusedError
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)


class GrowthApi(Protocol):
    """The API request of this behavior."""

    async def grow_volume_claim(
        self, claim: VolumeClaimView, size: str, grown_at: datetime | None
    ) -> None:
        """Ask for a larger volume. Raises ConflictError if the claim has changed, RefusedError if
        its storage class or a quota does not allow it.
        """


async def grow_claims(
    api: GrowthApi,
    group: Group,
    claims: Sequence[VolumeClaimView],
    use: Mapping[str, VolumeUse],
    now: datetime,
) -> Problem | None:
    """Grow the claims that are smaller than the spec asks for, whose volumes fill up, or that are
    much smaller than other members' after these have grown.

    Returns what keeps a claim from its size: a refusal, or an unfinished resize. A claim that has
    changed meanwhile is handled the next time.
    """
    problems, grown = [], dict[str, str]()
    for growth in growths(group.storage, claims, use, now):
        claim, grown_at = growth.claim, now if growth.by_itself else None
        where = f"{group.namespace}/{group.name}"
        try:
            await api.grow_volume_claim(claim, growth.size, grown_at)
        except (NotFoundError, ConflictError) as error:
            logger.info("%s: %s", where, error)
        except RefusedError as error:
            logger.warning("%s: %s", where, error)
            problems.append(refused(growth, str(error)))
        else:
            message = "%s: volume claim %s grows from %s to %s, since %s"
            logger.info(message, where, claim.name, claim.requested, growth.size, growth.why)
            grown[claim.name] = growth.size
    if problems:
        return problems[0]
    return growth_problem(
        [replace(each, requested=grown.get(each.name, each.requested)) for each in claims]
    )
