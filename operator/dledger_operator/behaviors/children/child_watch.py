"""Decides which watch events of a group's children call for a reconciliation, or may mean
that the roles have changed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dledger_operator import names
from dledger_operator.behaviors.children.child_edits import ChildEdits
from dledger_operator.behaviors.children.child_versions import ChildVersions
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.resources import children


class ChildWatch:
    """What is known of the children of one group from their watch events.

    Anyone may give the group's label to other objects. They cause no work, and nothing is kept.
    """

    def __init__(
        self, group: str, clock: Callable[[], float], on_event: Callable[[EventNote], None]
    ) -> None:
        """Create the watch of a group; `on_event` is called with every Event to record."""
        self._names = children.names_of(group)
        self._clock = clock
        self._on_event = on_event
        self._versions = ChildVersions()
        self._edits = ChildEdits()
        self._service_version = ""

    @property
    def is_contested(self) -> bool:
        """Whether a child has been edited so often that its next edit is not put back at once."""
        return self._edits.next_may_wait(self._clock())

    def may_change_roles(self, body: Mapping[str, Any]) -> bool:
        """Return whether a child is a version of the master Service that was not seen before.

        The Service records the roles. A restarted watch reports the same version again.
        """
        metadata = body["metadata"]
        service = names.master_service(metadata["labels"][names.GROUP_LABEL])
        if (body.get("kind"), metadata["name"]) != ("Service", service):
            return False
        before, self._service_version = self._service_version, metadata["resourceVersion"]
        return before != self._service_version

    def calls_for_reconcile(self, kind: str | None, body: Mapping[str, Any]) -> bool:
        """Return whether a child may have been changed or deleted by another client, and is to be
        put back at once.
        """
        if body["metadata"]["name"] not in self._names or not self._versions.is_news(kind, body):
            return False
        if note := self._edits.take(kind, body, self._clock()):
            self._on_event(note)
        return not self._edits.is_contested(body)
