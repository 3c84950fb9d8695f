"""etcd: three servers and its Go client. etcd is not a log: each entry is the value of a key."""

import subprocess
from itertools import islice
from pathlib import Path
from typing import IO

from bench.peers.client import Client
from bench.peers.nats import go_client
from bench.peers.peer import Description, Peer, PeerGroup
from tools.groups.ports import free_ports
from tools.groups.processes import MemberProcesses
from tools.peer_programs import go_programs

QUOTA_BYTES = 8 << 30
_ports = free_ports()


class EtcdGroup(PeerGroup):
    """Servers n0, n1, n2."""

    def __init__(self, folder: Path, programs: Path) -> None:
        """Choose the servers' addresses."""
        addresses = [f"127.0.0.1:{port}" for port in islice(_ports, 6)]
        super().__init__(folder, {f"n{k}": addresses[k] for k in range(3)})
        self._programs = programs
        self._peer_urls = {f"n{k}": f"http://{addresses[3 + k]}" for k in range(3)}

    def _spawn(self, member: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        client_url, peer_url = f"http://{self.peers[member]}", self._peer_urls[member]
        options = {
            "name": member,
            "data-dir": self.store_folder(member),
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": ",".join(f"{name}={url}" for name, url in self._peer_urls.items()),
            "quota-backend-bytes": QUOTA_BYTES,
            "log-level": "error",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return subprocess.Popen([self._programs / "etcd", *words], stdout=log, stderr=log)


class Etcd(Peer):
    """etcd, which always syncs its log before it acknowledges."""

    description = Description(
        name="etcd",
        promise="flushed by 2 of 3",
        client="clientv3, connected to the leader: puts of 1,000 keys in turn, from one goroutine "
        "for each in flight; reads are linearizable ranges of up to 1 MiB of values",
    )
    ways_to_read = ("ranges",)

    def __init__(self) -> None:
        """Find the programs; raises PeerMissingError."""
        self._programs = go_programs()

    def group_in(self, folder: Path) -> EtcdGroup:
        """Return a group of three servers."""
        return EtcdGroup(folder, self._programs)

    def client_of(self, group: MemberProcesses) -> Client:
        """Start `peerclient -peer etcd`."""
        return go_client(self._programs, "etcd", group)
