"""Whole turns of following a leader, request by request: a test decides which request of several
operators continues next, and how it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar, cast

from dledger_formats.http.status import NodeStatus
from dledger_kube.pod_store import PodStore
from dledger_operator.api_objects import ChildView, PodView
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.role_labeler import FollowResult, RoleLabeler
from dledger_operator.clients.errors import KubeError, UnavailableError
from dledger_operator.observed_state import Membership, Observation
from dledger_operator.spec.group import Group

T = TypeVar("T")


class Outcome(Enum):
    """How a request ends."""

    OK = "ok"
    REFUSED = "refused"
    """The request fails, and the server has done nothing."""
    UNANSWERED = "unanswered"
    """The request fails, but the server has carried it out."""
    OLD = "old"
    """The server's cache answers a LIST, with the oldest pods that the client allows."""


@dataclass(slots=True)
class Request:
    """A request that waits."""

    what: str
    outcome: asyncio.Future[Outcome]
    not_older_than: int = 0
    """The version of a LIST that the server's cache may answer; 0 if it may not."""

    @property
    def is_get(self) -> bool:
        """Whether it reads one object of the group, such as the Service."""
        return self.what.startswith("get ")


class SteppedApi:
    """The API server's pods and the members' answers; every request waits for the test."""

    def __init__(self, store: PodStore, answer: Callable[[PodView], NodeStatus | None]) -> None:
        self.store = store
        self._answer = answer
        self.waiting: list[Request] = []

    async def member_pods(
        self, namespace: str, group: str, not_older_than: int = 0
    ) -> list[PodView]:
        request = Request("list", asyncio.get_running_loop().create_future(), not_older_than)
        outcome = await self._outcome(request)
        if outcome is Outcome.OLD:
            return self.store.pods_since(not_older_than)[0]
        return await _done(
            request, outcome, lambda: self.store.member_pods(namespace, group, not_older_than)
        )

    async def child(self, kind: str, namespace: str, name: str) -> ChildView | None:
        return await self._request(f"get {kind}", lambda: self.store.child(kind, namespace, name))

    async def relabel_pod(
        self, pod: PodView, labels: Mapping[str, str | None], annotations: Mapping[str, str]
    ) -> PodView:
        known = cast("Mapping[str, str]", labels)
        return await self._request(
            f"relabel {pod.name}", lambda: self.store.relabel_pod(pod, known, annotations)
        )

    async def ask(self, pods: Sequence[PodView]) -> Mapping[str, NodeStatus]:
        """Ask members for their status; one that is not reached is left out."""

        async def asked(pod: PodView) -> NodeStatus | None:
            async def answer() -> NodeStatus | None:
                return self._answer(pod)

            try:
                return await self._request(f"ask {pod.member_id}", answer)
            except UnavailableError:
                return None

        answers = await asyncio.gather(*map(asked, pods))
        return {pod.uid: each for pod, each in zip(pods, answers, strict=True) if each}

    async def _request(self, what: str, do: Callable[[], Awaitable[T]]) -> T:
        request = Request(what, asyncio.get_running_loop().create_future())
        return await _done(request, await self._outcome(request), do)

    async def _outcome(self, request: Request) -> Outcome:
        self.waiting.append(request)
        try:
            return await request.outcome
        finally:
            self.waiting.remove(request)


async def _done(request: Request, outcome: Outcome, do: Callable[[], Awaitable[T]]) -> T:
    if outcome is Outcome.REFUSED:
        raise UnavailableError(f"{request.what}: refused")
    result = await do()
    if outcome is Outcome.UNANSWERED:
        raise UnavailableError(f"{request.what}: no answer")
    return result


class _Polls:
    """The polls that the labeler uses."""

    def __init__(self, of: "SteppedFollower") -> None:
        self._of = of

    def sync(self, pods: Sequence[PodView]) -> None:
        """Forget the answers of pods that are gone."""
        present, known = {pod.uid for pod in pods}, self._of.observations
        self._of.observations = {uid: known[uid] for uid in known.keys() & present}

    def observations(self) -> list[Observation]:
        return [*self._of.observations.values()]


class SteppedFollower:
    """One operator's turns. It sees what `observations` and `membership` say."""

    def __init__(
        self,
        store: PodStore,
        group: Group,
        membership: Membership,
        *,
        clock: Callable[[], float],
        answer: Callable[[PodView], NodeStatus | None],
        stands_by: Callable[[], bool] = lambda: False,
    ) -> None:
        self.group = group
        self.membership = membership
        self.observations: dict[str, Observation] = {}
        self.settled: FollowResult | None = None
        self.looks_again_s: float | None = None
        """The result of the last turn."""
        self._api = SteppedApi(store, answer)
        self._labeler = RoleLabeler(
            self._api,
            cast("LeaderPolls", _Polls(self)),
            ask=self._api.ask,
            clock=clock,
            on_decision=lambda _: None,
            on_settled=self._settle,
            on_conflict=lambda: None,
            stands_by=stands_by,
        )
        self._turn: asyncio.Task[None] | None = None

    def saw(self, pod: PodView) -> None:
        """Notify the operator of a pod, as a watch event does."""
        self._labeler.saw(pod.resource_version)

    def service_changed(self) -> None:
        """Notify the operator that the master Service has changed, as a watch event does."""
        self._labeler.roles_changed = True

    def is_list_old(self) -> bool:
        """Return whether the next request is a LIST that the server's cache may answer with pods
        that have changed.
        """
        request, store = self.requests[0], self._api.store
        since = request.not_older_than
        return since > 0 and store.pods_since(since)[0] != store.pods()

    @property
    def requests(self) -> list[Request]:
        """The requests that are waiting."""
        return self._api.waiting

    @property
    def runs(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None and not self._turn.done()

    def begin(self) -> None:
        """Begin a turn, if none is under way."""
        if not self.runs:
            self._turn = asyncio.create_task(self._run_once())

    async def turn(self) -> None:
        """Run one turn without a fault."""
        self.begin()
        await settle()
        while self.runs:
            await self.let_on(0, Outcome.OK)

    async def let_on(self, number: int, outcome: Outcome) -> None:
        """Let one of the waiting requests end, and wait for the next requests."""
        self.requests[number].outcome.set_result(outcome)
        await settle()
        if self._turn is not None and self._turn.done():
            self._turn.result()  # raises what an invariant of the test has found

    async def crash(self) -> None:
        """End the turn at its current request."""
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)
        self._turn = None

    async def _run_once(self) -> None:
        try:
            self.looks_again_s = await self._labeler.run_once(self.group, self.membership)
        except KubeError:
            return  # the loop would try again

    def _settle(self, result: FollowResult) -> None:
        self.settled = result


async def settle() -> None:
    """Let every task run until it waits for its next request: no callback of the loop is ready."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
