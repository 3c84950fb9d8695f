"""NATS JetStream: three servers, streams of three replicas in files, and nats.go."""

import subprocess
from itertools import islice
from pathlib import Path
from typing import IO

from bench.peers.client import Client
from bench.peers.peer import CLIENT_LOG, Description, Peer, PeerGroup
from tools.groups.ports import free_ports
from tools.groups.processes import MemberProcesses
from tools.peer_programs import go_programs

CONFIGURATION = """\
server_name: {name}
listen: {client}
jetstream {{ store_dir: "{folder}", max_mem: 256MB, max_file: 30GB{sync} }}
cluster {{ name: peers, listen: {route}, routes: [{routes}] }}
"""
SYNC = ", sync_interval: always"
_ports = free_ports()


class NatsGroup(PeerGroup):
    """Servers n0, n1, n2."""

    def __init__(self, folder: Path, programs: Path, *, flush: bool) -> None:
        """Write the servers' configurations."""
        addresses = [f"127.0.0.1:{port}" for port in islice(_ports, 6)]
        super().__init__(folder, {f"n{k}": addresses[k] for k in range(3)})
        self._programs = programs
        routes = ", ".join(f"nats://{address}" for address in addresses[3:])
        for k, member in enumerate(self.peers):
            configuration = CONFIGURATION.format(
                name=member,
                client=addresses[k],
                folder=self.store_folder(member),
                sync=SYNC if flush else "",
                route=addresses[3 + k],
                routes=routes,
            )
            self._configuration(member).write_text(configuration)

    def _configuration(self, member: str) -> Path:
        return self.folder / f"{member}.conf"

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        server, configuration = self._programs / "nats-server", self._configuration(member)
        return subprocess.Popen([server, "-c", configuration], stdout=log, stderr=log)


class NatsUnflushed(Peer):
    """JetStream with its default settings, which syncs its files every two minutes."""

    description = Description(
        name="nats-unflushed",
        promise="in the memory (page cache) of 2 of 3",
        client="nats.go, connected to the stream's leader: Publish (1 in flight), PublishAsync; "
        "an ordered consumer that pulls 2,000 messages at once",
    )
    flush = False

    def __init__(self) -> None:
        """Find the programs; raises PeerMissingError."""
        self._programs = go_programs()

    def group_in(self, folder: Path) -> NatsGroup:
        """Return a group of three servers."""
        return NatsGroup(folder, self._programs, flush=self.flush)

    def client_of(self, group: MemberProcesses) -> Client:
        """Start `peerclient -peer nats`."""
        return go_client(self._programs, "nats", group)


class Nats(NatsUnflushed):
    """JetStream that syncs its files before it acknowledges."""

    description = Description(
        name="nats",
        promise="flushed by 2 of 3 (sync_interval: always)",
        client=NatsUnflushed.description.client,
    )
    flush = True


def go_client(programs: Path, kind: str, group: MemberProcesses) -> Client:
    """Start the client program of NATS and etcd."""
    servers = ",".join(f"{member}={address}" for member, address in group.peers.items())
    program = programs / "peerclient"
    return Client([program, "-peer", kind, "-servers", servers], group.folder / CLIENT_LOG)
