"""The order in which objects about one group are carried out. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def group_of(body: Mapping[str, Any]) -> str:
    """Return the name of the group that an object is about; empty if its spec names none."""
    reference = (body.get("spec") or {}).get("groupRef") or {}
    return str(reference.get("name", ""))


def earlier(
    body: Mapping[str, Any],
    existing: Sequence[Mapping[str, Any]],
    is_out_of_the_way: Callable[[Mapping[str, Any]], bool],
) -> str:
    """Return the name of an earlier object about the same group that is in the way; empty if there
    is none. Objects of the same second are ordered by name.
    """

    def order(each: Mapping[str, Any]) -> tuple[bool, str, str]:
        # An object that has begun keeps its turn, even if the clocks of two API servers differ.
        metadata, begun = each["metadata"], {"startedAt", "job"} & (each.get("status") or {}).keys()
        return (not begun, metadata["creationTimestamp"], metadata["name"])

    rivals = [
        each
        for each in existing
        if group_of(each) == group_of(body)
        and each["metadata"]["uid"] != body["metadata"]["uid"]
        and not is_out_of_the_way(each)
        and order(each) < order(body)
    ]
    return str(min(rivals, key=order)["metadata"]["name"]) if rivals else ""
