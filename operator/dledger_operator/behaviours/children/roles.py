"""Which role label and values are in force: those of the master Service as it was applied. Pure.

A spec that is paused or refused changes no Service, so the pods must keep the labels that the
Services select by. The master Service records its roles in an annotation, in the same write as its
selector. It also records the labels of earlier roles, which the operator removes from the pods.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import ChildView, PodView, Problem
from dledger_operator.behaviours.children.ownership import Ownership, ownership
from dledger_operator.spec.group import Group, Roles

ROLE_IN_USE: Final = "RoleInUse"
FORMER_MAX: Final = 4


def roles_in_force(service: ChildView | None, group: Group) -> Roles:
    """Return the roles that the master Service was applied with; those of the spec while the group
    has no such Service. A selector that somebody has edited by hand changes nothing.
    """
    if service is None or ownership(service, group) not in (Ownership.OWN, Ownership.ORPHAN):
        return group.roles
    recorded = service.annotations.get(names.ROLES_ANNOTATION)
    if recorded is None:  # the Service of an earlier release
        return _of_selector(service, group)
    try:
        values = json.loads(recorded)
        former = tuple(str(each) for each in values["former"])[:FORMER_MAX]
        label, master, slave = (str(values[key]) for key in ("label", "master", "slave"))
    except (ValueError, KeyError, TypeError):
        return _of_selector(service, group)
    return Roles(label=label, master=master, slave=slave, former=former)


def to_apply(group: Group, in_force: Roles) -> Roles:
    """Return the roles of the spec, with the labels that pods may still carry from earlier ones.

    A label that the spec gives to all pods is not removed.
    """
    labels = (in_force.label, *in_force.former)
    former = (each for each in labels if each != group.roles.label and each not in group.pod_labels)
    return replace(group.roles, former=tuple(dict.fromkeys(former))[:FORMER_MAX])


def differ(wanted: Roles, in_force: Roles) -> bool:
    """Return whether the Services would select by something else."""
    return replace(wanted, former=()) != replace(in_force, former=())


def conflict(wanted: Roles, in_force: Roles, pods: Sequence[PodView]) -> Problem | None:
    """Return why the roles must not change now: pods that do not lead carry what the master Service
    would select by, or may be given it before the Service has changed.
    """
    if not differ(wanted, in_force):
        return None
    now_slave = (wanted.label, wanted.master) == (in_force.label, in_force.slave)
    carrying = [
        pod.name
        for pod in pods
        if pod.labels.get(wanted.label) == wanted.master and pod.role(in_force) != in_force.master
    ]
    if not now_slave and not carrying:
        return None
    who = ", ".join(carrying) or "followers"
    message = (
        f"spec.roles would make the master Service select {wanted.label}={wanted.master}, which "
        f"{who} may carry; the Services and labels keep {in_force.label}={in_force.master} and "
        f"{in_force.slave}: choose a value for spec.roles.master that no pod carries"
    )
    return Problem(reason=ROLE_IN_USE, message=message)


def _of_selector(service: ChildView, group: Group) -> Roles:
    rest = {key: each for key, each in service.selector.items() if key != names.GROUP_LABEL}
    if len(rest) != 1 or len(service.selector) != 2:
        return group.roles
    ((label, master),) = rest.items()
    slave = group.roles.slave if group.roles.slave != master else names.ROLE_SLAVE
    return Roles(label=label, master=master, slave=slave)
