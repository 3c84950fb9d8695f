"""Tells that a pod which is being deleted does not end. Pure.

Kubernetes keeps the pod until its kubelet confirms that it has ended, and the StatefulSet makes no
other one of its name before that. The operator forces nothing: the member may still run there, and
two members of one id would be two votes.
"""

from datetime import datetime, timedelta
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import PodView, Problem

POD_TERMINATING: Final = "PodTerminating"
LATE_MIN: Final = timedelta(seconds=30)
"""A kubelet kills the containers at the end of the grace period, and confirms seconds later."""
CURE: Final = (
    "If the machine is off for good, delete its Node, or give it the taint "
    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; the operator never forces it, since "
    "the member may still run there"
)


def stuck(pod: PodView, now: datetime) -> Problem | None:
    """Return the problem of a pod whose end is overdue; None if it is not."""
    if pod.ends_by is None or now < pod.ends_by + LATE_MIN:
        return None
    message = f"{where(pod)} should have ended by {names.timestamp(pod.ends_by)}. {CURE}"
    return Problem(reason=POD_TERMINATING, message=message)


def where(pod: PodView) -> str:
    """Name a pod and its node."""
    return f"pod {pod.name} on node {pod.node}" if pod.node else f"pod {pod.name}"
