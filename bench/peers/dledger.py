"""This project: three members, and its Python client."""

import sys
from pathlib import Path

from bench.failover_faults import wait_until_in_order
from bench.measured_group import measured_group
from bench.peers.client import Client
from bench.peers.peer import CLIENT_LOG, Description, Peer
from dledger_formats.http.status import FlushDiskType
from tools.groups.node_group import NodeGroup
from tools.groups.processes import MemberProcesses

CLIENT = "DLedgerClient on uvloop: append_all; read_batches, get_range"


class DLedger(Peer):
    """This project with SyncFlush, its default."""

    description = Description(
        name="dledger", promise="flushed by 2 of 3 (SyncFlush)", client=CLIENT
    )
    ways_to_read = ("batches", "iterator")
    flush = FlushDiskType.SYNC_FLUSH

    def group_in(self, folder: Path) -> NodeGroup:
        """Return a group of three members with the default timers."""
        return measured_group(folder, flush_disk_type=self.flush)

    def client_of(self, group: MemberProcesses) -> Client:
        """Start `python -m bench.peers.dledger_program`."""
        command = [sys.executable, "-m", "bench.peers.dledger_program", *group.servers]
        return Client(command, group.folder / CLIENT_LOG)

    def leader(self, group: MemberProcesses, client: Client) -> str:
        """Return the leader by the members' status pages, which also show if members are ready."""
        assert isinstance(group, NodeGroup)
        return wait_until_in_order(group)


class DLedgerAsync(DLedger):
    """This project with AsyncFlush, which acknowledges as Java DLedger does."""

    description = Description(
        name="dledger-async",
        promise="in the memory (page cache) of 2 of 3 (AsyncFlush)",
        client=CLIENT,
    )
    flush = FlushDiskType.ASYNC_FLUSH
