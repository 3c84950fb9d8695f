"""The order in which objects about one group are carried out. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def group_of(body: Mapping[str, Any]) -> str:
    """Return the name of the group that an object is about; empty if its spec names none."""
    reference = (body.get("spec") or {}).get("groupRef") or {}
    return str(reference.get("name", ""))


def has_begun(body: Mapping[str, Any]) -> bool:
    """Return whether the work on an object has begun."""
    return bool({"startedAt", "job"} & (body.get("status") or {}).keys())


def place(body: Mapping[str, Any]) -> tuple[bool, str, str]:
    """Return the place of an object in the order; the smallest one goes first."""
    # An object that has begun keeps its turn, even if the clocks of two API servers differ.
    metadata = body["metadata"]
    return (not has_begun(body), metadata["creationTimestamp"], metadata["name"])


def earlier(
    body: Mapping[str, Any],
    existing: Sequence[Mapping[str, Any]],
    is_out_of_the_way: Callable[[Mapping[str, Any]], bool],
) -> str:
    """Return the name of an earlier object about the same group that is in the way; empty if there
    is none. Objects of the same second are ordered by name.
    """
    rivals = [
        each
        for each in existing
        if group_of(each) == group_of(body)
        and each["metadata"]["uid"] != body["metadata"]["uid"]
        and not is_out_of_the_way(each)
        and place(each) < place(body)
    ]
    return str(min(rivals, key=place)["metadata"]["name"]) if rivals else ""
