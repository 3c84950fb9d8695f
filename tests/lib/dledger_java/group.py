"""`JavaGroup`: members of Java DLedger as processes, as `dledger_group` has them in Python."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dledger_formats.frames import FrameDecoder, encode_requests
from dledger_formats.requests import (
    DLedgerResponseCode,
    MetadataRequest,
    MetadataResponse,
    RequestCode,
)
from dledger_group.group import wait_for
from dledger_group.ports import free_ports
from dledger_java.process import QUICK_START, start_java

WAIT_S = 60.0  # four JVMs may start at once, on two cores
ASK_TIMEOUT_S = 5.0
POLL_S = 0.1
DATA_BYTES = 1 << 20  # a file's size, unless a test says otherwise
INDEX_BYTES = 160 << 10
_ports: Iterator[int] = free_ports()


class JavaGroup:
    """Members n0, n1, … of the group `g`; stops what it started when its block ends.

    `options` are setters of DLedgerConfig. Java listens on every address of the machine.
    """

    def __init__(
        self,
        folder: Path,
        class_path: str,
        members: int = 3,
        *,
        jvm_options: Sequence[str] = QUICK_START,
        **options: object,
    ) -> None:
        self.folder = folder
        self.peers = {f"n{k}": f"127.0.0.1:{next(_ports)}" for k in range(members)}
        self._class_path = class_path
        self._jvm_options = jvm_options
        self._options = {
            "heartBeatTimeIntervalMs": 500,
            "mappedFileSizeForEntryData": DATA_BYTES,
            "mappedFileSizeForEntryIndex": INDEX_BYTES,
            **options,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start every member, and wait until a majority names one leader."""
        for member in self.peers:
            self.start(member)
        self.leader()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what still runs; on an error, show the ends of the logs."""
        for member in list(self._processes):
            self.thaw(member)
            self.kill(member)
        if error is not None:
            for member in self.peers:
                print(f"--- {member}\n{self.log(member)[-3000:]}", file=sys.stderr)

    @property
    def servers(self) -> list[str]:
        """Every member's address, in DLedger's form `id-host:port`."""
        return [f"{member}-{address}" for member, address in self.peers.items()]

    def start(self, member: str) -> None:
        """Start one member's process."""
        assert member not in self._processes
        arguments = {
            "group": "g",
            "selfId": member,
            "peers": ";".join(self.servers),
            "storeBaseDir": self.folder,
            **self._options,
        }
        with self._log_path(member).open("ab") as log:
            self._processes[member] = start_java(
                self._class_path,
                "JavaMember",
                [f"{key}={_text(value)}" for key, value in arguments.items()],
                home=self.folder,
                log=log,
                options=self._jvm_options,
            )

    def kill(self, member: str) -> None:
        """End one member as a crash would."""
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def stop(self, member: str) -> None:
        """Ask one member to end in order."""
        process = self._processes.pop(member)
        process.terminate()
        process.wait(timeout=WAIT_S)

    def freeze(self, member: str) -> None:
        """Stop a member's process without ending it."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def thaw(self, member: str) -> None:
        """Let a frozen member go on."""
        self._processes[member].send_signal(signal.SIGCONT)

    def process_id(self, member: str) -> int:
        """Process id of a running member."""
        return self._processes[member].pid

    def running(self) -> list[str]:
        """Members whose process was started and not ended."""
        return sorted(self._processes)

    def store_folder(self, member: str) -> Path:
        """Where a member keeps its files."""
        return self.folder / f"dledger-{member}"

    def log(self, member: str) -> str:
        """What a member's process has written."""
        path = self._log_path(member)
        return path.read_text(errors="replace") if path.exists() else ""

    def leader(self, *, other_than: str | None = None) -> str:
        """Wait for a running leader that a majority of the members name; returns its id."""

        def named() -> str | None:
            self._check_processes()
            names = [self.named_leader(member) for member in self.running()]
            for name in {*names} & {*self.running()} - {other_than, None}:
                if 2 * names.count(name) > len(self.peers):
                    return name
            time.sleep(POLL_S)  # a JVM that starts needs the processor more than this does
            return None

        return wait_for(named, "a leader that the members agree on", timeout_s=WAIT_S)

    def named_leader(self, member: str) -> str | None:
        """Whom one member says to lead; None when it knows nobody, or gives no answer."""
        request = MetadataRequest(group="g", remote_id=member)
        frame = encode_requests(RequestCode.METADATA, [(0, request.to_json())])
        host, port = self.peers[member].split(":")
        decoder = FrameDecoder()
        deadline_s = time.monotonic() + ASK_TIMEOUT_S
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=ASK_TIMEOUT_S) as connection,
        ):
            connection.sendall(frame)
            while time.monotonic() < deadline_s and (data := connection.recv(1 << 16)):
                for command in decoder.feed(data):
                    response = MetadataResponse.from_json(command.body)
                    assert response.code is DLedgerResponseCode.SUCCESS, response
                    return response.leader_id
        return None

    def _check_processes(self) -> None:
        for member, process in self._processes.items():
            if process.poll() is not None:
                raise AssertionError(f"{member} ended by itself with {process.returncode}")

    def _log_path(self, member: str) -> Path:
        return self.folder / f"{member}.log"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
