"""Watches a condition of a group: everything that it said, in order.

Looks at the status once in a while miss what the operator says only for a moment.
"""

import itertools
from typing import Any

from dledger_e2e.group import Group
from dledger_e2e.object_watch import ObjectWatch


class ConditionWatch(ObjectWatch):
    """Begins with what the condition says now."""

    def __init__(self, group: Group, kind: str) -> None:
        super().__init__(group, "dlg", group.name)
        self._kind = kind
        self.said: list[dict[str, Any]] = []
        """The condition, each time that it has changed."""

    @property
    def reasons(self) -> list[str]:
        """Every reason, once for each time that the condition came to it."""
        return [reason for reason, _ in itertools.groupby(each["reason"] for each in self.said)]

    def _has_begun(self) -> bool:
        return bool(self.said)

    def _process_event(self, event: dict[str, Any]) -> None:
        conditions = event["object"].get("status", {}).get("conditions", [])
        told = next((each for each in conditions if each["type"] == self._kind), None)
        if told is not None and self.said[-1:] != [told]:
            self.said.append(told)
