"""What to do about a pod that does not start, by what Kubernetes reports. Pure."""

from collections.abc import Iterable
from typing import Final

from dledger_operator import names, reasons
from dledger_operator.problem import Problem

_QUOTA: Final = (
    "raise the namespace's quota, or ask for less in spec.replicas, spec.resources or "
    "spec.storage.size; Kubernetes tries again by itself"
)
_PRIORITY: Final = "create the PriorityClass, or correct spec.scheduling.priorityClassName"
_REFUSED: Final = (
    "change what refuses the pod, or the part of the spec that it names; Kubernetes tries again by "
    "itself"
)
_VOLUME: Final = (
    "if it stays so, create the storage class, or see why its provisioner does not make the "
    "volume; a group that never had a leader can also be deleted with its volume claims, and "
    "applied with another spec.storage.storageClassName"
)
_NODE: Final = (
    "add a node that fits, or correct spec.scheduling or spec.resources; the operator then makes "
    "the pods again"
)
_LOST: Final = (
    f"if the volume does not come back, give the member a new one with a {names.REPLACE_KIND}"
)
_IMAGE: Final = (
    "correct spec.image, or spec.imagePullSecrets if the registry asks for a login; the operator "
    "then makes the pods again"
)
_BY_REASON_AND_WORDS: Final = (
    (reasons.FAILED_CREATE, "exceeded quota", _QUOTA),
    (reasons.FAILED_CREATE, "PriorityClass", _PRIORITY),
    (reasons.FAILED_CREATE, "", _REFUSED),
    ("VolumePending", "", _VOLUME),
    ("VolumeLost", "", _LOST),
    # What schedulers of several releases say about a volume that no node has.
    (reasons.UNSCHEDULABLE, "PersistentVolume's node affinity", _LOST),
    (reasons.UNSCHEDULABLE, "volume node affinity conflict", _LOST),
    (reasons.UNSCHEDULABLE, "", _NODE),
    ("ErrImagePull", "", _IMAGE),
    ("ImagePullBackOff", "", _IMAGE),
    ("InvalidImageName", "", _IMAGE),
)


def listed(problems: Iterable[tuple[str, Problem]]) -> str:
    """List the problems of pods, each with the pod's name, and what to do about them.

    Each cure is named once, after the first problem that it is for: the end of a long message is
    cut off.
    """
    parts: list[str] = []
    for pod, problem in problems:
        parts.append(f"{pod}: {problem.reason}: {problem.message}")
        if (to_do := cure(problem)) and to_do not in parts:
            parts.append(to_do)
    return "; ".join(parts)


def cure(problem: Problem) -> str:
    """Return what to do about the problem of a pod or of its volume claim; empty if unknown."""
    return next(
        (
            advice
            for reason, words, advice in _BY_REASON_AND_WORDS
            if reason == problem.reason and words in problem.message
        ),
        "",
    )
