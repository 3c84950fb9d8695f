"""`Client`: a peer's client program, which answers requests on its standard input.

Each request and each answer is one line with a JSON object; an answer with `error` raises
ClientError. The same requests go to every peer:

    create            makes the log, with three replicas
    leader            names the leader of the log; `whole`: all replicas are in order
    append            keeps `in_flight` appends in flight: `acknowledged`, `failed`, `p50_ms`,
                      `p99_ms` of `seconds` after `warm_up_s`
    fill              appends `entries` bodies, however is fastest, and waits for all of them
    read              reads the log from its start, and checks each body's size: `seconds`
    pace              starts appends at a steady rate, through whichever member leads
    acknowledgements  those since the last such request: pairs of begin and end in Unix ns
    rest              stops the steady appends
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tools.setup import ROOT

END_TIMEOUT_S: Final = 15.0


class ClientError(Exception):
    """The client program ended, failed, or did not answer in time."""


class Client:
    """Starts a client program, and ends it at the end of the `with` block."""

    def __init__(self, command: Sequence[str | os.PathLike[str]], log: Path | None) -> None:
        """Start the program. `log` gets its error output, the end of which an error prints."""
        self._log = log
        with contextlib.ExitStack() as files:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=files.enter_context(log.open("ab")) if log else None,
                bufsize=0,
                cwd=ROOT,
            )
        self._unread = b""

    def __enter__(self) -> Self:
        """Return the running client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the program's input, which ends it; kill it if it does not end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(0 if error else END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        if error is not None and self._log is not None:
            print(f"--- client\n{self._log.read_text(errors='replace')[-3000:]}", file=sys.stderr)

    @property
    def process_id(self) -> int:
        """The program's process id."""
        return self._process.pid

    def ask(self, do: str, *, timeout_s: float = 90.0, **fields: object) -> dict[str, Any]:
        """Send a request and return the answer; raises ClientError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        except BrokenPipeError as error:
            raise ClientError(f"the client program has ended before {do!r}") from error
        answer: dict[str, Any] = json.loads(self._line(do, time.monotonic() + timeout_s))
        if "error" in answer:
            raise ClientError(f"{do}: {answer['error']}")
        return answer

    def _line(self, do: str, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise ClientError(f"the client program did not answer {do!r} in time")
            some = os.read(self._process.stdout.fileno(), 1 << 20)
            if not some:
                raise ClientError(f"the client program ended instead of answering {do!r}")
            self._unread += some
        line, _, self._unread = self._unread.partition(b"\n")
        return line
