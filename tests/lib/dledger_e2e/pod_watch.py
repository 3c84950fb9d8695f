"""Watches the members' pods: how many had the master label at once, and how many were up."""

from typing import Any

from dledger_e2e.group import ROLE_LABEL, Group
from dledger_e2e.object_watch import ObjectWatch


class PodWatch(ObjectWatch):
    """Begins once every member was seen; `double_masters` must stay empty."""

    def __init__(self, group: Group) -> None:
        super().__init__(group, "pods", f"--selector=dledger.io/group={group.name}")
        self._members = int(group.get("dlg", group.name)["spec"]["replicas"])
        self._roles: dict[str, str] = {}
        self.events = 0
        self.double_masters: list[list[str]] = []
        self._up: set[str] = set()
        self._all_were_up = False
        self.fewest_up = 0
        """The smallest number of members that were up at once, since all of them were first. A
        member is up from when its pod is first ready until the pod is to end: during an election no
        pod is ready, and all of these members vote.
        """
        self.terms: dict[str, list[int]] = {}
        """All values of each pod's term annotation, in order."""

    def _has_begun(self) -> bool:
        return len(self._roles) >= self._members

    def _process_event(self, event: dict[str, Any]) -> None:
        self.events += 1
        metadata = event["object"]["metadata"]
        name = metadata["name"]
        self._count_up(event)
        if event["type"] == "DELETED":
            self._roles.pop(name, None)
            return
        self._roles[name] = metadata.get("labels", {}).get(ROLE_LABEL, "")
        term = metadata.get("annotations", {}).get("dledger.io/term")
        if term is not None:
            self.terms.setdefault(f"{name} {metadata['uid']}", []).append(int(term))
        masters = sorted(pod for pod, role in self._roles.items() if role == "master")
        if len(masters) > 1:
            self.double_masters.append(masters)

    def _count_up(self, event: dict[str, Any]) -> None:
        metadata = event["object"]["metadata"]
        ends = event["type"] == "DELETED" or "deletionTimestamp" in metadata
        conditions = event["object"].get("status", {}).get("conditions", [])
        if ends:
            self._up.discard(metadata["name"])
        elif any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
            self._up.add(metadata["name"])
        up = len(self._up)
        if not self._all_were_up:
            self._all_were_up = up == self._members
            self.fewest_up = up
        self.fewest_up = min(self.fewest_up, up)
