"""Which client owns which field of an applied object. Pure.

Server-side apply leaves alone what another client has added, for example an environment variable of
the pod template, which a member would read when it restarts. Such fields belong to the operator.
Once it owns them as well, its next apply removes them, because its manifest lacks them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Entry: TypeAlias = dict[str, Any]
"""An entry of `metadata.managedFields`, as the API server sends it."""

OWNED_WHOLLY: Final[Mapping[str, tuple[str, ...]]] = {
    "NetworkPolicy": ("f:spec",),
    "StatefulSet": ("f:spec", "f:template"),
}
"""The part of a kind that no other client may add to: the path in `fieldsV1`."""


def taken_over(kind: str, entries: Sequence[Entry], manager: str) -> list[Entry] | None:
    """Return the entries after the apply of `manager` has taken over what others own of the wholly
    owned part; None if they own nothing of it.
    """
    path = OWNED_WHOLLY.get(kind)
    own = next((each for each in entries if _is_apply_of(each, manager)), None)
    if path is None or own is None:
        return None
    taken = [(each, _at(each, path)) for each in entries if each is not own]
    if not any(part for _, part in taken):
        return None
    fields = own["fieldsV1"]
    for _, part in taken:
        fields = _merged(fields, _nested(path, part)) if part else fields
    kept = [_without(each, path) if part else each for each, part in taken]
    return [own | {"fieldsV1": fields}, *(each for each in kept if each["fieldsV1"])]


def _is_apply_of(entry: Entry, manager: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource")) == (
        manager,
        "Apply",
        None,
    )


def _at(entry: Entry, path: tuple[str, ...]) -> Mapping[str, Any]:
    part = entry.get("fieldsV1") or {}
    for step in path:
        part = part.get(step) or {}
    return part


def _nested(path: tuple[str, ...], part: Mapping[str, Any]) -> Mapping[str, Any]:
    for step in reversed(path):
        part = {step: part}
    return part


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the union of two sets of fields."""
    both = {key: _merged(one[key], other[key]) for key in one.keys() & other.keys()}
    return {**one, **other, **both}


def _without(entry: Entry, path: tuple[str, ...]) -> Entry:
    return entry | {"fieldsV1": _pruned(entry["fieldsV1"], path)}


def _pruned(fields: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields without the part at a path, and without parents that become empty."""
    step, *rest = path
    inner = _pruned(fields[step], tuple(rest)) if rest else {}
    others = {key: value for key, value in fields.items() if key != step}
    return others | ({step: inner} if inner.keys() - {"."} else {})
