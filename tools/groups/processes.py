"""`MemberProcesses`: the processes of a group's members, in Python or Java, and their files."""

import abc
import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tools.groups.waiting import WAIT_S


class MemberProcesses(abc.ABC):
    """Starts and stops members. At the end of the `with` block, running members are killed."""

    def __init__(self, folder: Path, peers: Mapping[str, str]) -> None:
        """`folder` holds the members' folders; `peers` are the initial voters' addresses."""
        self.folder = folder
        self.peers = dict(peers)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start every voter, and wait until the group is usable."""
        try:
            for member in self.peers:
                self.start(member)
            self._wait_until_usable()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the running members; on an error, print the ends of their logs."""
        for member in self.running():
            with contextlib.suppress(ProcessLookupError):
                self.thaw(member)
            self.kill(member)
        if error is not None:
            for path in sorted(self.folder.glob("n*.log")):
                print(f"--- {path.stem}\n{self.log(path.stem)[-3000:]}", file=sys.stderr)

    @property
    def servers(self) -> list[str]:
        """Every voter's address in DLedger's form, `id-host:port`."""
        return [f"{member}-{address}" for member, address in self.peers.items()]

    def start(self, member: str) -> None:
        """Start one member's process."""
        assert member not in self._processes
        with self._log_path(member).open("ab") as log:
            self._processes[member] = self._spawn(member, log)

    def kill(self, member: str) -> None:
        """Kill one member with SIGKILL."""
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def stop(self, member: str) -> int:
        """Stop one member with SIGTERM, as Kubernetes does; return its exit code."""
        process = self._processes.pop(member)
        process.terminate()
        return process.wait(timeout=WAIT_S)

    def wait_for_exit(self, member: str) -> int:
        """Wait until a member exits by itself; return its exit code."""
        return self._processes.pop(member).wait(timeout=WAIT_S)

    def freeze(self, member: str) -> None:
        """Suspend a member's process with SIGSTOP."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def thaw(self, member: str) -> None:
        """Resume a frozen member."""
        self._processes[member].send_signal(signal.SIGCONT)

    def process_id(self, member: str) -> int:
        """Return the process id of a running member."""
        return self._processes[member].pid

    def running(self) -> list[str]:
        """Return the members whose processes were started and not yet stopped."""
        return sorted(self._processes)

    def store_folder(self, member: str) -> Path:
        """Return the folder in which a member keeps its files."""
        return self.folder / f"dledger-{member}"

    def log(self, member: str) -> str:
        """Return the output of a member's process."""
        path = self._log_path(member)
        return path.read_text(errors="replace") if path.exists() else ""

    @abc.abstractmethod
    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a member that writes its output to `log`."""

    @abc.abstractmethod
    def _wait_until_usable(self) -> None:
        """Wait until the group is ready for use."""

    def _log_path(self, member: str) -> Path:
        return self.folder / f"{member}.log"
