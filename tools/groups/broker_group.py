"""`BrokerGroup`: a group whose members are RocketMQ brokers."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

from dledger_formats.peers import format_peers, split_address
from dledger_formats.rocketmq import broker_variables as variables
from tools.groups.node_group import NodeGroup, next_port
from tools.groups.waiting import wait_for


class BrokerGroup(NodeGroup):
    """Members n0, n1, … of the group `g`, as processes of `dledger-broker`."""

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        *,
        registered_at: str = "",
        reached_at: str = "",
        shares_port: bool = False,
        **settings: object,
    ) -> None:
        """`registered_at` lists name servers; `settings` override fields of `NodeSettings`.

        `reached_at` is a host at which clients reach any member, at the port of the first one; the
        members then know only their own addresses. With `shares_port` all members also listen on
        one port, the group's address.
        """
        super().__init__(folder, members, addable=0, **settings)
        self._registered_at = registered_at
        self._reached_at = reached_at
        self.group_address = f"127.0.0.1:{next_port()}" if shares_port else ""
        self.broker_addresses = {member: f"127.0.0.1:{next_port()}" for member in self.peers}

    @property
    def name_servers(self) -> str:
        """The list of name servers for a client: the shared address, or those of the members."""
        return self.group_address or ";".join(self.broker_addresses.values())

    def command(self, member: str) -> list[str]:
        """Return the command that starts a member."""
        return [sys.executable, "-m", "dledger_broker"]

    def wait_until_up(self, member: str) -> None:
        """Wait until a member serves its status page and clients of the broker."""
        super().wait_until_up(member)
        host, port = split_address(self.broker_addresses[member])

        def accepts() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
                return True
            return False

        wait_for(accepts, f"the broker of {member} accepts connections")

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DLEDGER_")}
        given = self.settings(member).to_environment()
        if "snapshot_threshold" not in self._settings:
            del given["DLEDGER_SNAPSHOT_THRESHOLD"]
        environment |= given
        if self._reached_at:
            _, _, port = self.broker_addresses["n0"].rpartition(":")
            environment[variables.GROUP_ADDRESS] = f"{self._reached_at}:{port}"
            environment[variables.OWN_ADDRESS] = self.broker_addresses[member]
        else:
            environment[variables.ADDRESSES] = format_peers(self.broker_addresses)
        if self.group_address:
            environment[variables.GROUP_ADDRESS] = self.group_address
            environment[variables.SHARES_PORT] = "true"
        environment[variables.NAME_SERVERS] = self._registered_at
        return subprocess.Popen(self.command(member), env=environment, stdout=log, stderr=log)
