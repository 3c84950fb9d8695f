"""Rolls of a group's pods."""

from typing import Any

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for

ROLLED_S = 240.0


def halted_pod(group: Group) -> str:
    """Wait until a roll has halted, because the image of one pod cannot be pulled; return it."""

    def found() -> str | None:
        waiting = [pod for pod, each in group.pods().items() if _cannot_pull(each)]
        halted = group.condition("Progressing").get("reason") == "RollHalted"
        return waiting[0] if halted and len(waiting) == 1 else None

    return wait_for(found, "the roll has halted", ROLLED_S)


def _cannot_pull(pod: dict[str, Any]) -> bool:
    states = [each["state"] for each in pod["status"].get("containerStatuses", [])]
    reasons = [each.get("waiting", {}).get("reason") for each in states]
    return any(reason in ("ErrImagePull", "ImagePullBackOff") for reason in reasons)
