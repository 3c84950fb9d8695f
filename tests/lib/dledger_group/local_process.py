"""`LocalGroupProcess`: `dledger group local` as a user runs it."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.groups.ports import consecutive_ports


class LocalGroupProcess:
    """The command in its own process, and the events that it prints."""

    def __init__(self, folder: Path, members: int, addable: int = 0, *options: str) -> None:
        """Start the command; `options` come last."""
        self.folder = folder
        first = consecutive_ports(2 * (members + addable))
        command = "import sys; from dledger_client.cli import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, "group", "local", "-o", "json",
             f"--data={folder}", f"--port={first}", f"--members={members}",
             f"--addable={addable}", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.started = self.event("started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(signal.SIGTERM)

    def event(self, kind: str) -> dict[str, Any]:
        """Return the next event of a kind; skip other events."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == kind:
                return event
        raise AssertionError(f"no event {kind} was printed: {self.process.communicate()}")

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and the standard error."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.finish()

    def finish(self) -> tuple[int, str]:
        """Wait until the command exits; return the exit code and the standard error."""
        try:
            _, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            out, err = self.process.communicate(timeout=60)
            raise AssertionError(f"the command did not exit: {out} {err}") from None
        return self.process.returncode, err

    @property
    def servers(self) -> list[str]:
        """The members' addresses."""
        return [member["address"] for member in self.started["members"].values()]
