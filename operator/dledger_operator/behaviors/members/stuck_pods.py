"""Detects a pod that is being deleted but does not end. Pure.

Kubernetes keeps the pod until its kubelet confirms that it has ended, and the StatefulSet makes no
other pod of its name before that. The operator forces nothing: the member may still run there, and
two members with one id would have two votes.
"""

from datetime import datetime, timedelta
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import PodView
from dledger_operator.problem import Problem

POD_TERMINATING: Final = "PodTerminating"
LATE_MIN: Final = timedelta(seconds=30)
"""A kubelet kills the containers at the end of the grace period, and confirms seconds later."""
CURE: Final = (
    "If the machine is off for good, delete its Node, or give it the taint "
    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; the operator never forces it, since "
    "the member may still run there"
)


def stuck(pod: PodView, now: datetime, node_ready: bool | None) -> Problem | None:
    """Return the problem of a pod whose end is overdue; None if it is not. `node_ready` says
    whether its Node is Ready; None if it is not known.
    """
    if pod.ends_by is None or now < pod.ends_by + LATE_MIN:
        return None
    message = f"{where(pod)} should have ended by {names.timestamp(pod.ends_by)}. "
    message += cure(pod, node_ready)
    return Problem(reason=POD_TERMINATING, message=message)


def cure(pod: PodView, node_ready: bool | None) -> str:
    """Return what keeps a pod that is being deleted, and what to do about it.

    Only a machine that is off calls for the removal of its Node: on any other one, the members of
    this and other groups would be removed with it.
    """
    finalizers = f"the finalizer {', '.join(pod.finalizers)}" if pod.finalizers else ""
    kept = f"; then {finalizers} has to go, too" if finalizers else ""
    if finalizers and (pod.ended or not pod.node):
        return (
            f"None of its containers runs, but {finalizers} keeps it: find out why the "
            "controller that has set it does not remove it"
        )
    if node_ready:
        return (
            f"The node {pod.node} is Ready, but its kubelet does not confirm that the pod has "
            f"ended: see the pod's Events and the kubelet's log{kept}"
        )
    if node_ready is None:
        return (
            "If the node is Ready, leave it alone, and see the pod's Events, its finalizers and "
            f"the kubelet's log. {CURE}{kept}"
        )
    return CURE + kept


def where(pod: PodView) -> str:
    """Name a pod and its node."""
    return f"pod {pod.name} on node {pod.node}" if pod.node else f"pod {pod.name}"
