"""Measures for how long pods have run or been ready, by the operator's own clock.

The API server's and the kubelets' clocks may differ from the operator's, so their times of day say
nothing about how long ago something was. They only show whether the readiness has changed.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from dledger_operator.api_objects import PodView

State: TypeAlias = tuple[bool, bool, datetime | None]
"""Whether a pod's container runs, whether it is ready, and since when."""


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
