"""`NodeGroup`: members as processes, each with its own folder and ports."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from dledger_formats.settings import GroupState, NodeSettings
from dledger_formats.status import Manifest, NodeStatus
from dledger_group.ports import free_ports

T = TypeVar("T")

WAIT_S = 60.0
POLL_S = 0.01
_ports: Iterator[int] = free_ports()


class NodeGroup:
    """Members n0, n1, … of the group `g`; stops what it started when its block ends.

    `peers` are its first voters. Behind them come those that may be added, which are not started.
    """

    def __init__(
        self, folder: Path, members: int = 3, *, addable: int = 0, **settings: object
    ) -> None:
        self.folder = folder
        ids = [f"n{k}" for k in range(members + addable)]
        addresses = {member: f"{self.host(member)}:{next(_ports)}" for member in ids}
        self.peers = {member: addresses[member] for member in ids[:members]}
        self.addable = {member: addresses[member] for member in ids[members:]}
        self.http_ports = {member: next(_ports) for member in ids}
        self._settings: dict[str, object] = {
            "heartbeat_interval_ms": 100,
            "election_timeout_ms": 500,
            "segment_size_bytes": 1 << 20,
            "index_segment_size_bytes": 160 << 10,
            "initial_group_state": GroupState.NEW,
            **settings,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start every member, and wait until each answers."""
        try:
            for member in self.peers:
                self.start(member)
            for member in self.peers:
                self.wait_until_up(member)
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
        """Kill what still runs; on an error, show the ends of the logs."""
        for member in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                self._processes[member].send_signal(signal.SIGCONT)
            self.kill(member)
        if error is not None:
            for member in self.http_ports:
                print(f"--- {member}\n{self.log(member)[-3000:]}", file=sys.stderr)

    def host(self, member: str) -> str:
        """Where a member listens."""
        return "127.0.0.1"

    def command(self, member: str) -> list[str]:
        """What starts a member; its process is the node's own, so that signals reach it."""
        return [sys.executable, "-m", "dledger_node"]

    @property
    def servers(self) -> list[str]:
        """Every member's address, in DLedger's form `id-host:port`."""
        return [f"{member}-{address}" for member, address in self.peers.items()]

    def settings(self, member: str) -> NodeSettings:
        """One member's settings."""
        return NodeSettings(
            group="g",
            self_id=member,
            peers=self.peers,
            addable_peers=self.addable,
            store_base_dir=str(self.folder),
            listen_host=self.host(member),
            http_port=self.http_ports[member],
            **self._settings,  # type: ignore[arg-type]
        )

    def start(self, member: str) -> None:
        """Start one member's process."""
        assert member not in self._processes
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
        environment |= self.settings(member).to_environment()
        with self._log_path(member).open("ab") as log:
            self._processes[member] = subprocess.Popen(
                self.command(member), env=environment, stdout=log, stderr=log
            )

    def wait_until_up(self, member: str) -> None:
        """Wait until a member answers."""
        self.wait_for_status(member, lambda _: True, "answers")

    def kill(self, member: str) -> None:
        """End one member as a crash would."""
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def stop(self, member: str) -> int:
        """Ask one member to end, as Kubernetes does; returns its exit code."""
        process = self._processes.pop(member)
        process.terminate()
        return process.wait(timeout=WAIT_S)

    def wait_for_exit(self, member: str) -> int:
        """Wait until a member ends by itself; returns its exit code."""
        return self._processes.pop(member).wait(timeout=WAIT_S)

    def freeze(self, member: str) -> None:
        """Stop a member's process without ending it."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def thaw(self, member: str) -> None:
        """Let a frozen member go on."""
        self._processes[member].send_signal(signal.SIGCONT)

    def process_id(self, member: str) -> int:
        """Process id of a running member."""
        return self._processes[member].pid

    def store_folder(self, member: str) -> Path:
        """Where a member keeps its files."""
        return self.folder / f"dledger-{member}"

    def log(self, member: str) -> str:
        """What a member has logged."""
        path = self._log_path(member)
        return path.read_text() if path.exists() else ""

    def get(
        self, member: str, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one page of a member."""
        connection = http.client.HTTPConnection(
            self.host(member), self.http_ports[member], timeout=10
        )
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def status(self, member: str) -> NodeStatus:
        """A member's view of the group."""
        return NodeStatus.from_json(self.get(member, "/status")[1])

    def manifest(self, member: str) -> Manifest:
        """What a member lets auditors read."""
        return Manifest.from_json(self.get(member, "/manifest")[1])

    def running(self) -> list[str]:
        """Members whose process was started and not ended."""
        return sorted(self._processes)

    def master(self) -> str:
        """Wait for a master that a majority of its voters name in its term; returns its id."""
        return wait_for(self._agreed_master, "a master that the members agree on")

    def wait_for_status(
        self, member: str, condition: Callable[[NodeStatus], bool], what: str
    ) -> None:
        """Wait until a member's status is as wanted."""

        def met() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return condition(self.status(member))
            return False

        wait_for(met, f"{member}: {what}")

    def _agreed_master(self) -> str | None:
        views = []
        for member in self.running():
            with contextlib.suppress(OSError, http.client.HTTPException):
                views.append(self.status(member))
        for view in views:
            voters = [v for v in views if v.self_id in view.voters]
            named = [v for v in voters if v.term == view.term and v.leader_id == view.self_id]
            if view.master and 2 * len(named) > len(view.voters):
                return view.self_id
        return None

    def _log_path(self, member: str) -> Path:
        return self.folder / f"{member}.log"


def wait_for(found: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """Ask until the answer is true; AssertionError with `what` when it never is."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = found()
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)
