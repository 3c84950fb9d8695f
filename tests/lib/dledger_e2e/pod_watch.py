"""Watches the members' pods: how many had the master label at once, and how many were up.

A watch that saw nothing proves nothing: the block begins once every member was seen, and fails if
kubectl ended before it.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
from types import TracebackType
from typing import Any, Self

from dledger_e2e.group import ROLE_LABEL, Group
from dledger_e2e.waiting import wait_for


class PodWatch:
    """Processes the API server's watch events; `double_masters` must stay empty."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._members = int(group.get("dlg", group.name)["spec"]["replicas"])
        self._roles: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _stop
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

    def __enter__(self) -> Self:
        """Start watching, and wait until every member was seen.

        Raises AssertionError if kubectl ends first, or lists fewer pods for a minute.
        """
        self._process = self._group.deployment.kubernetes.start(
            "get", "pods", f"--namespace={self._group.namespace}",
            f"--selector=dledger.io/group={self._group.name}",
            "--watch", "--output-watch-events", "--output=json",
            stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        try:
            wait_for(self._has_seen_every_member, "the watch has seen every member")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching. Raises AssertionError if the watch had ended before the block did."""
        try:
            if error is None:
                self._assert_runs()
        finally:
            self._stop()

    def _has_seen_every_member(self) -> bool:
        self._assert_runs()
        return len(self._roles) >= self._members

    def _assert_runs(self) -> None:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise AssertionError(f"the watch ended with {code}: {said or 'kubectl said nothing'}")

    def _stop(self) -> None:
        assert self._process is not None
        assert self._thread is not None
        self._process.terminate()
        self._process.wait()
        self._thread.join(timeout=10)
        assert not self._thread.is_alive(), "not all events were read"
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _follow(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        decoder = json.JSONDecoder()
        text = ""
        for line in self._process.stdout:
            text = (text + line.decode()).lstrip()
            with contextlib.suppress(json.JSONDecodeError):  # an event may span several lines
                while text:
                    event, end = decoder.raw_decode(text)
                    text = text[end:].lstrip()
                    self._process_event(event)

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
