"""`NodeGroup`: this node's members as processes, each with its own folder and ports."""

import contextlib
import http.client
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import IO

from dledger_formats.http.status import Manifest, NodeStatus
from dledger_formats.settings import GroupState, NodeSettings
from tools.groups.ports import free_ports
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

_ports: Iterator[int] = free_ports()


def next_port() -> int:
    """Return a port that no other group of this process gets."""
    return next(_ports)


class NodeGroup(MemberProcesses):
    """Members n0, n1, … of the group `g`.

    The first `members` are the initial voters. The next `addable` ones may join later and are not
    started. `settings` override fields of `NodeSettings`.
    """

    def __init__(
        self, folder: Path, members: int = 3, *, addable: int = 0, **settings: object
    ) -> None:
        ids = [f"n{k}" for k in range(members + addable)]
        addresses = {member: f"{self.host(member)}:{next(_ports)}" for member in ids}
        super().__init__(folder, {member: addresses[member] for member in ids[:members]})
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

    def host(self, member: str) -> str:
        """Return the address on which a member listens."""
        return "127.0.0.1"

    def command(self, member: str) -> list[str]:
        """Return the command that starts a member.

        The process is the node itself, without a wrapper, so that signals reach it.
        """
        return [sys.executable, "-m", "dledger_node"]

    def settings(self, member: str) -> NodeSettings:
        """Return a member's settings."""
        return NodeSettings(
            group="g",
            self_id=member,
            peers=self.peers,
            addable_peers=self.addable,
            store_base_dir=str(self.folder),
            listen_host=self.host(member),
            http_port=self.http_ports[member],
            http_peers={one: f"{self.host(one)}:{port}" for one, port in self.http_ports.items()},
            **self._settings,  # type: ignore[arg-type]
        )

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
        environment |= self.settings(member).to_environment()
        return subprocess.Popen(self.command(member), env=environment, stdout=log, stderr=log)

    def _wait_until_usable(self) -> None:
        for member in self.peers:
            self.wait_until_up(member)

    def wait_until_up(self, member: str) -> None:
        """Wait until a member serves its status page."""
        self.wait_for_status(member, lambda _: True, "answers")

    def get(
        self, member: str, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Request a page of a member; return the HTTP status and the body."""
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
        """Return a member's view of the group. Raises HTTPException while its disk stalls."""
        code, body = self.get(member, "/status")
        if code != HTTPStatus.OK:
            raise http.client.HTTPException(f"{member} answers {code}: {body.decode()}")
        return NodeStatus.from_json(body)

    def manifest(self, member: str) -> Manifest:
        """Return the manifest that a member serves to auditors."""
        return Manifest.from_json(self.get(member, "/manifest")[1])

    def master(self) -> str:
        """Wait for a master that a majority of its voters name in its term; return its id."""
        return wait_for(self._agreed_master, "a master that the members agree on")

    def wait_for_status(
        self, member: str, condition: Callable[[NodeStatus], bool], what: str
    ) -> None:
        """Wait until a member's status meets the condition; `what` describes it."""

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
