"""Decides which watch events of a group's children may be another client's change."""

import json
from collections.abc import Mapping
from typing import Any, Final

_METADATA: Final = ("labels", "annotations", "ownerReferences")
"""The metadata that the operator applies; changing it does not raise the generation."""


class ChildVersions:
    """The last version of each child that was seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}

    def is_news(self, kind: str | None, body: Mapping[str, Any]) -> bool:
        """Return whether a child was deleted or has changed.

        The status of a StatefulSet or a budget changes with every pod, so for kinds that
        have generations only a new generation or a change of the metadata counts.
        """
        metadata = body["metadata"]
        key = (body.get("kind", ""), metadata["name"])
        version = metadata.get("generation") or metadata["resourceVersion"]
        content = [version, *(metadata.get(part) for part in _METADATA)]
        after = hash(json.dumps(content, sort_keys=True))
        before, self._seen[key] = self._seen.get(key), after
        return kind == "DELETED" or before != after
