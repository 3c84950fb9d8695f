"""Finds out which identity a group has, or gives it one. Pure.

A group gets its identity at its founding: the UID of its object, so that two runs of the operator
choose the same. It is recorded like the first voters (`founding`), and in the members' folders. A
group of an earlier release has none: it adopts the one that its members report, or, once all voters
have answered that they know none, the UID of its object. A group that was made with `dledger-node
store adopt` has another identity than its records; an annotation of its object then overrides them.
"""

from collections.abc import Mapping
from typing import Any, Final

from dledger_formats.settings import GROUP_IDENTITY_PATTERN
from dledger_operator import names
from dledger_operator.behaviors.founding.founding import FoundingRecords
from dledger_operator.problem import Problem
from dledger_operator.spec.group import Group

IDENTITY_UNKNOWN: Final = "IdentityUnknown"
IDENTITY_KEY: Final = "identity"


def overriding_identity(body: Mapping[str, Any]) -> str:
    """Return the identity in the annotation of a group's object; empty if there is none."""
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(names.IDENTITY_ANNOTATION, ""))


def find_identity(
    group: Group,
    records: FoundingRecords,
    *,
    override: str = "",
    reported: frozenset[str] | None,
) -> str | Problem:
    """Return the identity of a group; empty while it is not known yet.

    `override` is from `overriding_identity`. `reported` are the identities that the members report,
    none of them empty; None unless all voters have answered, and one of them is master.
    """
    if override:
        return override if GROUP_IDENTITY_PATTERN.fullmatch(override) else _invalid(override)
    recorded = _recorded(records)
    if len(set(recorded.values())) > 1:
        listed = ", ".join(f"{source} says {identity}" for source, identity in recorded.items())
        return _unknown(listed)
    if recorded:
        return next(iter(recorded.values()))
    if not (records.stateful_set or records.claims):
        return group.uid  # no pod of it can have run with another identity, or with none
    if reported is None:
        return ""
    if len(reported) > 1:
        return _unknown(f"the members report {', '.join(sorted(reported))}")
    return next(iter(reported), group.uid)


def _recorded(records: FoundingRecords) -> dict[str, str]:
    """Return the recorded identities by record."""
    recorded: dict[str, str] = {}
    if records.stateful_set:
        recorded["the StatefulSet"] = records.stateful_set.identity
    recorded |= {f"volume claim {claim.name}": claim.identity for claim in records.claims}
    recorded["the status"] = str(records.status.get(IDENTITY_KEY, ""))
    return {source: identity for source, identity in recorded.items() if identity}


def _unknown(detail: str) -> Problem:
    return Problem(
        reason=IDENTITY_UNKNOWN,
        message=(
            f"the identity of the group is unknown: {detail}; set the annotation "
            f"{names.IDENTITY_ANNOTATION} of the {names.GROUP_KIND} to the right one; nothing was "
            "changed"
        ),
    )


def _invalid(override: str) -> Problem:
    return Problem(
        reason=IDENTITY_UNKNOWN,
        message=(
            f"the annotation {names.IDENTITY_ANNOTATION} is {override[:80]!r}; it must match "
            f"{GROUP_IDENTITY_PATTERN.pattern}; nothing was changed"
        ),
    )
