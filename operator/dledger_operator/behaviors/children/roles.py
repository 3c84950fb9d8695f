"""Which role label and values are in force: those of the master Service as it was applied. Pure.

A spec that is paused or refused changes no Service, so the pods must keep the labels that the
Services select by. The master Service records its roles in an annotation, in the same write as its
selector. It also records the labels of earlier roles, which the operator removes from the pods.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import ChildView, PodView
from dledger_operator.behaviors.children.ownership import Ownership, ownership
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group, Roles

ROLE_IN_USE: Final = "RoleInUse"
FORMER_MAX: Final = 4
RECORD_LENGTH_MAX: Final = 4096
LABEL_LENGTH_MAX: Final = 316
_LABEL: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KUBERNETES: Final = re.compile(r"(^|[.])(kubernetes|k8s)[.]io/")
"""The forms and reserved names are those of `spec.roles` in the CRD."""


def roles_in_force(service: ChildView | None, group: Group) -> Roles:
    """Return the roles that the master Service was applied with; those of the spec while the group
    has no such Service.

    The record and the selector were written together. If they differ, somebody has edited one of
    them by hand: the selector if the record is what the spec asks for, and the record if the
    selector is. Then the other one counts, so the next reconciliation puts the edited one back. If
    the spec has changed too, the record counts. A record with a value that no label may have is
    ignored.
    """
    if service is None or ownership(service, group) not in (Ownership.OWN, Ownership.ORPHAN):
        return group.roles
    recorded = _recorded(service.annotations.get(names.ROLES_ANNOTATION, ""), group)
    if recorded is None:  # the Service of an earlier release, or one that somebody has edited
        return _of_selector(service, group)
    selects = {names.GROUP_LABEL: group.name, recorded.label: recorded.master}
    wanted = {names.GROUP_LABEL: group.name, group.roles.label: group.roles.master}
    if dict(service.selector) not in (selects, wanted) or dict(service.selector) == selects:
        return recorded
    return replace(group.roles, former=recorded.former)


def _recorded(text: str, group: Group) -> Roles | None:
    """Read a record of roles; None if it is missing or is not one that the operator writes."""
    if len(text) > RECORD_LENGTH_MAX:
        return None
    try:
        values = json.loads(text)
        former = values["former"]
        label, master, slave = (values[key] for key in ("label", "master", "slave"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(former, list) or not _is_role_label(label):
        return None
    valid = all(isinstance(each, str) and _VALUE.fullmatch(each) for each in (master, slave))
    if not valid or len({master, slave, names.ROLE_NONE}) < 3:
        return None
    kept = [each for each in former if _is_role_label(each) and each not in group.pod_labels]
    labels = tuple(dict.fromkeys(each for each in kept if each != label))[:FORMER_MAX]
    return Roles(label=label, master=master, slave=slave, former=labels)


def _is_role_label(key: object) -> bool:
    """Return whether the CRD allows this label for roles.

    The operator removes former role labels from pods, so it must not take another label for one.
    """
    if not isinstance(key, str) or len(key) > LABEL_LENGTH_MAX or not _LABEL.fullmatch(key):
        return False
    reserved = key.startswith(f"{names.API_GROUP}/") or _KUBERNETES.search(key)
    return key == names.ROLE_LABEL or not (reserved or key == names.TEMPLATE_HASH_LABEL)


def to_apply(group: Group, in_force: Roles) -> Roles:
    """Return the roles of the spec, with the labels that pods may still carry from earlier ones.

    A label that the spec gives to all pods is not removed.
    """
    labels = (in_force.label, *in_force.former)
    former = (each for each in labels if each != group.roles.label and each not in group.pod_labels)
    return replace(group.roles, former=tuple(dict.fromkeys(former))[:FORMER_MAX])


def differ(wanted: Roles, in_force: Roles) -> bool:
    """Return whether the Services would select by another label or value."""
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
    others = (group.roles.slave, names.ROLE_SLAVE, names.ROLE_MASTER)
    slave = next(each for each in others if each != master)
    return Roles(label=label, master=master, slave=slave)
