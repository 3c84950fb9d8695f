"""A fake API server and fake members for tests of objects that are carried out once, in which any
request may be the last one of an operator.
"""

import abc
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar, cast

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import IMAGES, NOW, group_body
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.one_off.worker import OneOffWorker
from dledger_operator.clients.errors import NotFoundError
from dledger_operator.metrics import OperatorMetrics

Object = dict[str, Any]
W = TypeVar("W", bound=OneOffWorker)


class KilledError(BaseException):
    """The operator was killed. No handler in the operator catches this error."""


def one_off_body(kind: str, name: str, uid: str, spec: Object) -> Object:
    """Return an object about the group `flights`."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": kind,
        "metadata": {
            "namespace": "air", "name": name, "uid": uid or f"{name}-uid", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"groupRef": {"name": "flights"}, **spec},
    }  # fmt: skip


@dataclass(slots=True)
class OneOffWorld(abc.ABC):
    """A group and objects about it. Tests change the fields to play all other actors."""

    objects: dict[str, Object] = field(default_factory=dict)
    """The stored objects by uid."""
    group: Object | None = field(default_factory=group_body)
    now_s: float = 0.0
    kills: list[tuple[int, bool]] = field(default_factory=list)
    """The requests at which the operator is killed, and whether after their effect."""
    requests: int = 0
    nodes: Nodes = field(default_factory=Nodes)
    events: list[str] = field(default_factory=list)

    def context(self) -> Context:
        """Return the context of an operator that has just started."""
        context = SimpleNamespace(
            api=_Api(self),
            member_http=_Members(self),
            authorized_requests=lambda *_: self,
            events=self,
            metrics=OperatorMetrics(clock=lambda: self.now_s),
            nodes=self.nodes,
            node_image=IMAGES,
            clock=lambda: self.now_s,
            now=lambda: self.now,
            random=Random(1),
        )
        return cast("Context", context)

    @property
    def now(self) -> datetime:
        """The time of day."""
        return NOW.astimezone(UTC) + timedelta(seconds=self.now_s)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which all other actors do their work."""
        self.now_s += seconds

    def status(self, uid: str) -> Object:
        """Return the status of an object."""
        found: Object = self.objects[uid].get("status", {})
        return found

    def ended(self, uid: str) -> bool:
        """Return whether an object has ended."""
        return self.status(uid).get("phase") in ("Succeeded", "Failed")

    def outcome(self, uid: str) -> tuple[str, str]:
        """Return the phase and the reason of an object."""
        status = self.status(uid)
        return status["phase"], status["conditions"][0]["reason"]

    def request(self, effect: Callable[[], Any]) -> Any:
        """Carry out a request, unless the operator is killed before it, and return its result."""
        self.requests += 1
        kills = {after for at, after in self.kills if at == self.requests}
        if False in kills:
            raise KilledError
        result = effect()
        if True in kills:
            raise KilledError
        return result

    async def custom_objects(self, kind: str, namespace: str) -> list[Object]:
        """List the objects."""
        return cast("list[Object]", self.request(lambda: copy.deepcopy([*self.objects.values()])))

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Object) -> None:
        """Replace the status of an object."""

        def store() -> None:
            uid = body["metadata"]["uid"]
            if uid not in self.objects:
                raise NotFoundError(uid)
            self.objects[uid]["status"] = copy.deepcopy(status)

        self.request(store)

    async def delete_custom_object(self, kind: str, body: Mapping[str, Any]) -> None:
        """Delete an object."""
        self.request(lambda: self.objects.pop(body["metadata"]["uid"]))

    async def record(self, kind: str, body: Mapping[str, Any], note: Any) -> None:
        """Record an Event."""
        self.events.append(f"{note.severity} {note.reason}: {note.message}")

    @abc.abstractmethod
    async def status_of(self, ip: str) -> NodeStatus:
        """Ask a member for its status."""


class _Api:
    """The world as an API server: it has the group as a request, not as a field."""

    def __init__(self, world: OneOffWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def group(self, namespace: str, name: str) -> Object:
        """Get the group."""

        def get() -> Object:
            if self._world.group is None or name != "flights":
                raise NotFoundError(name)
            return self._world.group

        return cast("Object", self._world.request(get))


class _Members:
    """The world as the members' HTTP pages."""

    def __init__(self, world: OneOffWorld) -> None:
        self._world = world

    async def status(self, ip: str) -> NodeStatus:
        """Ask a member for its status."""
        return await self._world.status_of(ip)


class World(Protocol[W]):
    """A world as far as operators need it."""

    objects: dict[str, Object]

    def worker(self, uid: str) -> W:
        """Return the worker of an operator that has just started."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""


@dataclass(slots=True)
class Operators(Generic[W]):
    """One operator after the other, each with a worker per object."""

    world: World[W]
    down_s: float = 1.0
    """How long an operator is away after it was killed."""
    workers: dict[str, W] = field(default_factory=dict)

    async def turn(self, check: Callable[[], None] = lambda: None) -> None:
        """Let every worker take a turn; call `check` after each. A killed operator is followed by
        another one.
        """
        for uid in sorted(self.world.objects):
            worker = self.workers.get(uid) or self.world.worker(uid)
            self.workers[uid] = worker
            try:
                await worker._run_once()
            except KilledError:
                self.workers.clear()
                self.world.pass_time(self.down_s)
            check()
