"""Finds in a pod's status why it does not start, and in Events why a pod does not exist."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from lightkube.models.core_v1 import ContainerStateTerminated, ContainerStatus
from lightkube.resources.core_v1 import Event, Pod

from dledger_operator import reasons
from dledger_operator.api_objects import CreationFailure
from dledger_operator.problem import Problem

MESSAGE_LENGTH_MAX: Final = 512
# Waiting reasons of a container that starts normally.
_STARTING_REASONS: Final = ("ContainerCreating", "PodInitializing")
_FAILED_CREATE: Final = re.compile(
    r"create (?:Pod|Claim \S+ for Pod) (?P<pod>\S+) in StatefulSet \S+ failed error: (?P<error>.+)",
    re.DOTALL,
)
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NOT_IN_REASONS: Final = re.compile(r"[^A-Za-z0-9_]+")
REASON_LENGTH_MAX: Final = 128


def problem_of(reason: str, message: str | None) -> Problem:
    """Return a problem with a message of bounded length, and a reason that a condition may have.

    Kubelets and schedulers also give reasons such as `OutOfephemeral-storage`. The API server would
    refuse the whole status of a group with such a condition.
    """
    words = _NOT_IN_REASONS.sub("_", reason).lstrip("_0123456789")[:REASON_LENGTH_MAX]
    return Problem(reason=words or "Unknown", message=(message or "").strip()[:MESSAGE_LENGTH_MAX])


def pod_problem(pod: Pod, container_name: str) -> Problem | None:
    """Find why a pod does not start: scheduling, image pull, crash or eviction. A problem of the
    named container comes before those of its sidecars.
    """
    status = pod.status
    if status is None:
        return None
    if status.phase == "Failed" and status.reason:
        return problem_of(status.reason, status.message)
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return problem_of(condition.reason or reasons.UNSCHEDULABLE, condition.message)
    for container in status.initContainerStatuses or []:
        if problem := _init_problem(container):
            return problem
    for container in sorted(
        status.containerStatuses or [], key=lambda each: each.name != container_name
    ):
        problem = None if container.ready else _container_problem(container)
        if problem and container.name != container_name:
            message = f"container {container.name}: {problem.message}"
            return Problem(reason=problem.reason, message=message)
        if problem:
            return problem
    return None


def _init_problem(container: ContainerStatus) -> Problem | None:
    """Return why an init container has not succeeded; None if it has, or still may."""
    state = container.state
    ended = state.terminated if state else None
    problem = None if container.ready else _container_problem(container)
    if ended and ended.exitCode:
        problem = problem_of(ended.reason or "Error", _how_ended(ended))
    if problem is None:
        return None
    message = f"init container {container.name}: {problem.message}"
    return Problem(reason=problem.reason, message=message)


def _container_problem(container: ContainerStatus) -> Problem | None:
    waiting = container.state.waiting if container.state else None
    if waiting is None or not waiting.reason or waiting.reason in _STARTING_REASONS:
        return None
    ended = container.lastState.terminated if container.lastState else None
    if ended is None:
        return problem_of(waiting.reason, waiting.message)
    # The container's own message may say what to do, so it comes before the part that is cut.
    message = f"{_how_ended(ended)}; {waiting.message or ''}".rstrip("; ")
    return problem_of(waiting.reason, message)


def _how_ended(ended: ContainerStateTerminated) -> str:
    exit_reason = ended.reason or "no reason given"
    last = f"the container last terminated with exit code {ended.exitCode} ({exit_reason})"
    detail = f": {ended.message.strip()}" if ended.message and ended.message.strip() else ""
    return last + detail


def creation_failures(events: Iterable[Event]) -> list[CreationFailure]:
    """Translate the StatefulSet controller's Events about refused pods and claims, latest first.

    Events with a text of another form are left out: they do not name their pod.
    """
    latest_first = sorted(events, key=lambda each: each.lastTimestamp or _LONG_AGO, reverse=True)
    return [
        CreationFailure(
            pod=found["pod"],
            message=found["error"].strip()[:MESSAGE_LENGTH_MAX],
            at=each.lastTimestamp,
        )
        for each in latest_first
        if (found := _FAILED_CREATE.match(each.message or ""))
    ]
