"""Finds what is left of a deleted group of the same name, which a group waits for. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

WAITING_FOR_REMAINS: Final = "WaitingForRemains"


def of_a_deleted_group(claims: Sequence[VolumeClaimView], group: Group) -> list[VolumeClaimView]:
    """Return the claims that are about to be deleted with a deleted group of the same name."""
    return [
        claim
        for claim in claims
        if any(
            (each.get("kind"), each.get("name")) == (names.GROUP_KIND, group.name)
            and each.get("uid") != group.uid
            for each in claim.owner_references
        )
    ]


def waiting_for(remaining: Iterable[str]) -> Problem:
    """Return the problem of objects whose deletion the group must wait for."""
    return Problem(
        reason=WAITING_FOR_REMAINS,
        message=(
            "the group begins when the remains of a deleted group of the same name are gone: "
            f"{', '.join(remaining)}"
        ),
    )
