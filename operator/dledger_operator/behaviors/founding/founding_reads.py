"""Reads the objects that record the founding of a group, and finds what it must wait for."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dledger_operator import names
from dledger_operator.api_objects import PodView, SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.founding.founding import (
    FoundingRecords,
    has_begun,
    is_founded_again,
)
from dledger_operator.behaviors.founding.remains import (
    WAITING_FOR_REMAINS,
    of_a_deleted_group,
    waiting_for,
)
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group


class FoundingApi(Protocol):
    """The API requests of this module."""

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods with a group's label from one LIST."""

    async def settings(self, namespace: str, config_map: str) -> SettingsView | None:
        """Get the ConfigMap with a group's settings; None if it does not exist."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""


async def read_founding_records(
    api: FoundingApi, group: Group, status: Mapping[str, Any], claims: Sequence[VolumeClaimView]
) -> FoundingRecords:
    """Read the objects that record a group's founding. Claims count only if the ConfigMap or the
    StatefulSet is missing.
    """
    settings = await api.settings(group.namespace, names.settings_config_map(group.name))
    stateful_set = await api.stateful_set(group.namespace, names.stateful_set(group.name))
    return FoundingRecords(
        settings=settings,
        stateful_set=stateful_set,
        claims=() if settings is not None and stateful_set is not None else claims,
        status=status,
    )


async def in_the_way(
    api: FoundingApi, group: Group, records: FoundingRecords, *, led: bool
) -> Problem | None:
    """Return what must be gone before the group is founded or its lost objects are recreated.

    Those are the claims of a deleted group of its name, and the pods of a founding that another one
    supersedes, which know other first voters (`founding.founded_again`). `led` says whether the
    group has had a leader.

    A claim that is being deleted counts as such only before the group has begun. Later it is the
    group's own: it is gone once the pod that uses it has ended, and the StatefulSet recreates both.
    """
    former, begun = of_a_deleted_group(records.claims, group), led or has_begun(records)
    leaving = [
        f"volume claim {claim.name}"
        for claim in records.claims
        if claim in former or (claim.leaving and not begun)
    ]
    if leaving:
        return waiting_for(leaving)
    if led or records.stateful_set is not None or not is_founded_again(records):
        return None
    pods = await api.member_pods(group.namespace, group.name)
    listed = ", ".join(pod.name for pod in pods)
    message = f"the group begins when the pods of its earlier StatefulSet are gone: {listed}"
    return Problem(reason=WAITING_FOR_REMAINS, message=message) if pods else None
