"""When a group's NetworkPolicies are made and removed."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from dledger_operator.api_objects import ChildView
from dledger_operator.behaviours.children.ownership import Ownership, ownership
from dledger_operator.behaviours.rolls.permission import Cause, Held
from dledger_operator.resources import network_policies
from dledger_operator.spec.group import Group

KIND = "NetworkPolicy"


class PoliciesApi(Protocol):
    """The API request of this behavior."""

    async def delete_network_policy(self, namespace: str, policy: ChildView) -> None:
        """Delete a policy. Raises ConflictError if another one has its name now."""


def waits_for_approval(kind: str, held: Held | None) -> bool:
    """Tell whether an object that does not exist yet must not be made now.

    An upgrade of the operator brings policies to groups that had none. That could cut their clients
    off, so they come with the other changes of the upgrade, once these are approved.
    """
    return kind == KIND and held is not None and held.cause is Cause.OPERATOR


def needed(found: Iterable[ChildView | None], group: Group) -> Iterator[ChildView]:
    """Return the objects with the names of children, without those of others whose names the group
    does not need: policies, if it is to have none.
    """
    wanted = network_policies.is_wanted(group)
    for each in found:
        if each is not None and (wanted or each.kind != KIND or _is_own(each, group)):
            yield each


async def drop_policies(api: PoliciesApi, group: Group, found: Iterable[ChildView]) -> None:
    """Delete the group's own policies if it is to have none."""
    if network_policies.is_wanted(group):
        return
    for each in found:
        if each.kind == KIND and _is_own(each, group):
            await api.delete_network_policy(group.namespace, each)


def _is_own(found: ChildView, group: Group) -> bool:
    return ownership(found, group) is not Ownership.FOREIGN
