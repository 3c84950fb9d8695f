"""Watches objects of a group's namespace, so that a test sees also what lasts only a moment.

A watch that saw nothing proves nothing: the block begins once the watch has seen what it has to
begin with, and fails if kubectl ended before it.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for


class ObjectWatch(ABC):
    """Processes the API server's watch events while a block runs."""

    def __init__(self, group: Group, *objects: str) -> None:
        """Prepare the watch of what `kubectl get` shows for these arguments."""
        self._group = group
        self._objects = objects
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _stop

    def __enter__(self) -> Self:
        """Start watching, and wait until the watch has begun.

        Raises AssertionError if kubectl ends first, or shows too little for a minute.
        """
        self._process = self._group.deployment.kubernetes.start(
            "get", *self._objects, f"--namespace={self._group.namespace}",
            "--watch", "--output-watch-events", "--output=json",
            stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        try:
            wait_for(self._runs_and_has_begun, f"the watch of {self._objects[0]} has begun")
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

    @abstractmethod
    def _has_begun(self) -> bool:
        """Return whether the watch has seen what it has to begin with."""

    @abstractmethod
    def _process_event(self, event: dict[str, Any]) -> None:
        """Process one event of the watch; a thread of the watch calls this."""

    def _runs_and_has_begun(self) -> bool:
        self._assert_runs()
        return self._has_begun()

    def _assert_runs(self) -> None:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            self._errors.seek(0)
            output = self._errors.read().decode(errors="replace").strip()
            raise AssertionError(f"the watch ended with {code}: {output or 'kubectl said nothing'}")

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
