"""Decides when a group's NetworkPolicies are made, and removes them."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from dledger_operator.api_objects import ChildView
from dledger_operator.behaviors.child_refused import child_refused
from dledger_operator.behaviors.children.ownership import Ownership, ownership
from dledger_operator.behaviors.rolls.permission import Held
from dledger_operator.clients.errors import RefusedError
from dledger_operator.problem import Problem
from dledger_operator.resources import network_policies
from dledger_operator.spec.group import Group

KIND = "NetworkPolicy"


class PoliciesApi(Protocol):
    """The API request of this behavior."""

    async def delete_network_policy(self, namespace: str, policy: ChildView) -> None:
        """Delete a policy. Raises ConflictError if another one has its name now, RefusedError if it
        may not be deleted.
        """


def wait_for_approval(found: Iterable[ChildView], group: Group, held: Held | None) -> bool:
    """Return whether policies that do not exist yet must not be made now.

    An upgrade of the operator brings policies to groups that had none. That could cut their clients
    off, so the first ones are made together with the pods of the new release: not before these are
    approved, and not while an earlier change of the spec keeps them from being planned.
    """
    return held is not None and not any(
        each.kind == KIND and _is_own(each, group) for each in found
    )


def needed(found: Iterable[ChildView | None], group: Group) -> Iterator[ChildView]:
    """Yield the objects with the names of children, except foreign ones whose names are not needed.

    Those are policies that others made, if the group is to have none.
    """
    wanted = network_policies.is_wanted(group)
    for each in found:
        if each is not None and (wanted or each.kind != KIND or _is_own(each, group)):
            yield each


async def drop_policies(
    api: PoliciesApi, group: Group, found: Iterable[ChildView]
) -> Problem | None:
    """Delete the group's own policies if it is to have none.

    Returns the problem of a refusal, which must not keep the operator from anything else.
    """
    if network_policies.is_wanted(group):
        return None
    problem = None
    for each in found:
        if each.kind == KIND and _is_own(each, group):
            try:
                await api.delete_network_policy(group.namespace, each)
            except RefusedError as error:
                problem = child_refused(group, error)
    return problem


def _is_own(found: ChildView, group: Group) -> bool:
    return ownership(found, group) is not Ownership.FOREIGN
