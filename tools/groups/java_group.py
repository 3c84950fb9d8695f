"""`JavaGroup`: members of Java DLedger as processes."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.frames import FrameDecoder, encode_requests
from dledger_formats.protocol.requests import MetadataRequest, MetadataResponse
from tools.groups.java_process import QUICK_START, start_java
from tools.groups.ports import free_ports
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

ASK_TIMEOUT_S = 5.0
POLL_S = 0.1
DATA_BYTES = 1 << 20  # default size of a data file
INDEX_BYTES = 160 << 10
_ports: Iterator[int] = free_ports()


class JavaGroup(MemberProcesses):
    """Members n0, n1, … of the group `g`, which is usable once a majority names one leader.

    `options` are properties of DLedgerConfig. Java listens on every address of the machine.
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
        super().__init__(folder, {f"n{k}": f"127.0.0.1:{next(_ports)}" for k in range(members)})
        self._class_path = class_path
        self._jvm_options = jvm_options
        self._options = {
            "heartBeatTimeIntervalMs": 500,
            "mappedFileSizeForEntryData": DATA_BYTES,
            "mappedFileSizeForEntryIndex": INDEX_BYTES,
            **options,
        }

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        arguments = {
            "group": "g",
            "selfId": member,
            "peers": ";".join(self.servers),
            "storeBaseDir": self.folder,
            **self._options,
        }
        return start_java(
            self._class_path,
            "JavaMember",
            [f"{key}={_text(value)}" for key, value in arguments.items()],
            home=self.folder,
            log=log,
            options=self._jvm_options,
        )

    def _wait_until_usable(self) -> None:
        self.leader()

    def leader(self, *, other_than: str | None = None) -> str:
        """Wait for a running leader that a majority of the members name; return its id."""

        def named() -> str | None:
            self._check_processes()
            names = [self.named_leader(member) for member in self.running()]
            for name in {*names} & {*self.running()} - {other_than, None}:
                if 2 * names.count(name) > len(self.peers):
                    return name
            return None

        # Poll slowly: a starting JVM needs the processor.
        return wait_for(named, "a leader that the members agree on", poll_s=POLL_S)

    def named_leader(self, member: str) -> str | None:
        """Return the leader that a member names; None if it knows none or does not answer."""
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
                raise AssertionError(f"{member} exited by itself with code {process.returncode}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
