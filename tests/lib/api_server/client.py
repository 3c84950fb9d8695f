"""Clients of the API server with administrator rights: HTTP, kubectl and helm."""

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Helm: TypeAlias = Callable[..., str]

API: Final = "/apis/dledger.io/v1alpha1"
ANSWER_SECONDS: Final = 30.0
COMMAND_SECONDS: Final = 60.0
CONDITION_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


class CommandError(Exception):
    """kubectl or helm failed; the message is its error output."""


class RefusedError(Exception):
    """The API server returned an error; the message is the server's own, unchanged."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """A running API server, and an administrator's clients of it."""

    programs: Path
    folder: Path
    port: int
    token: str

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def kubectl(self, *arguments: str, input_text: str | None = None) -> str:
        """Run kubectl; raises CommandError if it fails."""
        return self._run("kubectl", arguments, input_text)

    def helm(self, *arguments: str) -> str:
        """Run helm, with its caches in this server's folder; raises CommandError if it fails."""
        return self._run("helm", arguments, None)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Send one request and return the JSON response; raises RefusedError for an error."""
        call = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        trust = ssl.create_default_context(cafile=certificate(self.folder))
        try:
            with urllib.request.urlopen(call, timeout=timeout_seconds, context=trust) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise refusal(error.code, error.read()) from None

    def _run(self, program: str, arguments: Sequence[str], input_text: str | None) -> str:
        command = [str(self.programs / program), *arguments]
        return run(command, home=self.folder, kubeconfig=self.kubeconfig, input_text=input_text)


def run(
    command: Sequence[str | Path],
    *,
    home: Path,
    kubeconfig: Path | None = None,
    input_text: str | None = None,
) -> str:
    """Run a command and return its output; raises CommandError if it fails.

    The command does not see the user's settings: its home is `home`, and without a kubeconfig it
    has no cluster.
    """
    done = subprocess.run(
        command,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig or os.devnull),
        },
        input=input_text,
        stdin=subprocess.DEVNULL if input_text is None else None,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise CommandError(done.stderr)
    return done.stdout


def refusal(code: int, answer: bytes) -> RefusedError:
    """Convert an error response, which should be a Status object, to an exception."""
    try:
        message = json.loads(answer)["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.decode(errors="replace")
    return RefusedError(code, message)


def certificate(folder: Path) -> Path:
    """Return the path of the certificate that the server signs for itself at its start."""
    return folder / "certificates" / "apiserver.crt"


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; raises AssertionError after CONDITION_SECONDS."""
    deadline = time.monotonic() + CONDITION_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {CONDITION_SECONDS:g} s: {what}"
        time.sleep(POLL_SECONDS)
