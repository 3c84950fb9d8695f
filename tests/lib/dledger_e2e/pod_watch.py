"""Watches the members' pods and records every time that more than one had the master label."""

import contextlib
import json
import subprocess
import threading
from types import TracebackType
from typing import Any, Self

from dledger_e2e.group import ROLE_LABEL, Group


class PodWatch:
    """Processes the API server's watch events; `double_masters` must stay empty."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._roles: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self.events = 0
        self.double_masters: list[list[str]] = []
        self.terms: dict[str, list[int]] = {}
        """All values of each pod's term annotation, in order."""

    def __enter__(self) -> Self:
        """Start watching."""
        self._process = self._group.deployment.kubernetes.start(
            "get", "pods", f"--namespace={self._group.namespace}",
            f"--selector=dledger.io/group={self._group.name}",
            "--watch", "--output-watch-events", "--output=json",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        assert self._process is not None
        assert self._thread is not None
        self._process.terminate()
        self._process.wait()
        self._thread.join(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()

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
