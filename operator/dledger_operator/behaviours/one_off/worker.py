"""Carries out one object that is done once: works on it until it has ended, and keeps its status.

What is done is decided from the object's status and from what is found in the cluster, never from
memory alone, so another operator can go on at every step.
"""

import abc
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from dledger_operator.api_objects import Manifest
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.loops import Pace, Wake, repeat
from dledger_operator.clients.errors import NotFoundError

logger = logging.getLogger(__name__)

COMPLETE: Final = "Complete"
"""The type of the condition that tells the result."""


class OneOffWorker(abc.ABC):
    """Works on one object until nothing is left to do."""

    kind: ClassVar[str]
    """The object's kind."""
    behaviour: ClassVar[str]
    """The name of this behavior in metrics and log lines."""
    pace: ClassVar[Pace]
    ended_phases: ClassVar[tuple[str, ...]]
    """The phases in which a status is final."""

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the object no longer exists."""
        self.uid: str = body["metadata"]["uid"]
        self.namespace: str = body["metadata"]["namespace"]
        self.name: str = body["metadata"]["name"]
        self.group_name = group_of(body)
        self._body = body
        self._status: Mapping[str, Any] = body.get("status") or {}
        self._context = context
        self._on_gone = on_gone
        self._wake = Wake()

    async def run(self) -> None:
        """Work on the object until nothing is left to do."""
        await repeat(
            self._run_once,
            what=f"{self.behaviour} {self.namespace}/{self.name}",
            wake=self._wake,
            pace=self.pace,
            random=self._context.random,
            on_failure=partial(self._context.count_failure, self.behaviour),
            until=self.done,
        )

    def ended(self) -> bool:
        """Return whether the status is final."""
        return self._status.get("phase") in self.ended_phases

    def done(self) -> bool:
        """Return whether nothing is left to do."""
        return self.ended()

    def changed(self, body: Mapping[str, Any]) -> None:
        """Store a newer version of the object; its spec is immutable."""
        self._body = body

    def wake(self) -> None:
        """Look now, because something that the object waits for has changed."""
        self._wake.set()

    @abc.abstractmethod
    async def _run_once(self) -> float | None:
        """Take at most one step. Return in how many seconds to look again, if that is sooner than
        the pace.
        """

    async def _write(self, status: Manifest) -> bool:
        """Write the status if it differs. Return False if the object no longer exists."""
        if status == self._status:
            return True
        try:
            await self._context.api.apply_status(self.kind, self._body, status)
        except NotFoundError:
            self._on_gone()
            return False
        self._status = status
        return True


def group_of(body: Mapping[str, Any]) -> str:
    """Return the name of the group that an object is about; empty if its spec names none."""
    reference = (body.get("spec") or {}).get("groupRef") or {}
    return str(reference.get("name", ""))
