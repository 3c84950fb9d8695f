"""Measures for how long pods have run, been ready or been awaited, by the operator's own clock, and
remembers their last problems.

The API server's and the kubelets' clocks may differ from the operator's, so their times of day say
nothing about how long ago something was. They only show whether the readiness has changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

from dledger_operator.api_objects import PodView
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision

State: TypeAlias = tuple[bool, bool, datetime | None]
"""Whether a pod's container runs, whether it is ready, and since when."""
UNSEEN_S_MAX: Final = 120.0
"""How long a roll may not look at its pods. While it waits for one, it looks four times a minute,
unless its window is closed, its group is paused, or the API server does not answer.
"""


class Readiness:
    """The last state of each pod, and when this operator first saw it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[State, float]] = {}

    def observe(self, pods: Sequence[PodView], now_s: float) -> dict[str, float]:
        """Record the pods as they are at `now_s` on a monotonic clock. Return by uid for how many
        seconds each has been in its state.
        """
        seen: dict[str, tuple[State, float]] = {}
        for pod in pods:
            state = (pod.runs, pod.ready, pod.ready_since)
            before = self._seen.get(pod.uid)
            seen[pod.uid] = before if before and before[0] == state else (state, now_s)
        self._seen = seen
        return {uid: now_s - since_s for uid, (_, since_s) in seen.items()}


class Awaited:
    """For how long a roll has waited for each member's new pod to exist and to be ready.

    The time goes on while the container restarts, and in the pod that follows one that is lost. A
    pod that is still to be replaced is not awaited, however long it has not been ready. Time in
    which nobody looked does not count: the pod may have been ready then.
    """

    def __init__(self) -> None:
        self._wanted: Revision | None = None
        self._since_s: dict[str, float] = {}
        self._looked_s = 0.0

    def observe(
        self, pods: Sequence[PodView], wanted: Revision, voters: Iterable[str], now_s: float
    ) -> dict[str, float]:
        """Record the pods as they are at `now_s` on a monotonic clock. Return by member id for how
        many seconds the member has had no ready pod of the revision `wanted`.
        """
        if wanted != self._wanted or now_s - self._looked_s > UNSEEN_S_MAX:
            self._wanted, self._since_s = wanted, {}
        self._looked_s = now_s
        others = {pod.member_id for pod in pods if pod.ready or pod.revision != wanted}
        awaited = {*voters, *(pod.member_id for pod in pods)} - others
        self._since_s = {each: self._since_s.get(each, now_s) for each in awaited}
        return {each: now_s - since_s for each, since_s in self._since_s.items()}


class LastProblems:
    """Why the pods of a revision did not start, until they are ready.

    A container that crashes again and again runs for a moment between two back-offs of the kubelet,
    which reports no problem then. But what was wrong before a pod had a node is over once it has
    one.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Problem, str]] = {}
        """By uid: the last problem of each pod, and the node that the pod had then."""

    def observe(self, pods: Sequence[PodView], wanted: Revision) -> list[PodView]:
        """Return the pods, each one of the revision `wanted` with the last problem that it had."""
        before, self._known = self._known, {}
        for pod in pods:
            if pod.revision != wanted or pod.ready:
                continue
            if pod.problem:
                self._known[pod.uid] = (pod.problem, pod.node)
            elif pod.uid in before and before[pod.uid][1] == pod.node:
                self._known[pod.uid] = before[pod.uid]
        last = {uid: problem for uid, (problem, _) in self._known.items()}
        return [replace(pod, problem=last.get(pod.uid, pod.problem)) for pod in pods]
