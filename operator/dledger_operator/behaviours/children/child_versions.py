"""Tells which watch events of a group's children may be another client's change."""

from collections.abc import Mapping
from typing import Any


class ChildVersions:
    """The last version of each child that was seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], object] = {}

    def is_news(self, kind: str | None, body: Mapping[str, Any]) -> bool:
        """Return whether a child was deleted or has changed.

        A StatefulSet's status changes with every pod, so only a new generation counts.
        """
        metadata = body["metadata"]
        key = (body.get("kind", ""), metadata["name"])
        version = metadata.get("generation") or metadata["resourceVersion"]
        before, self._seen[key] = self._seen.get(key), version
        return kind == "DELETED" or before != version
