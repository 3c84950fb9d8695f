"""Finds out whether the names of a group's children are free. Pure.

An object that has the name of a child belongs to the group if the group owns it. It is an orphan of
the group if it has no owner and carries the labels that the operator gives to the group's children;
`kubectl delete --cascade=orphan` leaves such objects. Everything else is foreign: applying a child
over it would change it, and the group's deletion would delete it.
"""

import enum
from collections.abc import Iterable
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import ChildView
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

NAME_TAKEN: Final = "NameTaken"


class Ownership(enum.Enum):
    """Whether an object belongs to a group."""

    OWN = "own"
    ORPHAN = "orphan"
    REMAINS = "remains"
    """The object belongs to a deleted group of the same name and is about to be deleted with it."""
    FOREIGN = "foreign"


def ownership(found: ChildView, group: Group) -> Ownership:
    """Return whether an object that has the name of this group's child belongs to the group."""
    if any(owner.uid == group.uid for owner in found.owners):
        return Ownership.OWN
    if found.owners:
        former = all(
            (owner.kind, owner.name) == (names.GROUP_KIND, group.name) for owner in found.owners
        )
        return Ownership.REMAINS if former else Ownership.FOREIGN
    labels = (found.labels.get(names.GROUP_LABEL), found.labels.get(names.MANAGED_BY_LABEL))
    if labels != (group.name, names.FIELD_MANAGER):
        return Ownership.FOREIGN
    return Ownership.REMAINS if found.leaving else Ownership.ORPHAN


def foreign(found: Iterable[ChildView], group: Group) -> list[ChildView]:
    """Return the objects that do not belong to the group."""
    return [each for each in found if ownership(each, group) is Ownership.FOREIGN]


def remains(found: Iterable[ChildView], group: Group) -> list[str]:
    """Return the names of the objects that a deleted group of the same name has left."""
    return [
        f"{each.kind} {each.name}" for each in found if ownership(each, group) is Ownership.REMAINS
    ]


def name_taken(taken: Iterable[ChildView], *, changed: str) -> Problem:
    """Return the problem of names that foreign objects have."""
    listed = ", ".join(f"{each.kind} {each.name}" for each in taken)
    return Problem(
        reason=NAME_TAKEN,
        message=(
            f"the group needs the names of objects that are not its own: {listed}; {changed}: "
            "create the group under another name, or delete these objects if nobody needs them"
        ),
    )
