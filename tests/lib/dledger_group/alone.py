"""A group of one member in the test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from dledger_client.client import DLedgerClient
from dledger_client.cluster.addresses import ServerAddress
from dledger_client.cluster.connection import Connection
from dledger_formats.settings import NodeSettings
from dledger_node.main import serve
from tools.groups.ports import free_ports

_ports = free_ports()


class IgnoringOwner:
    """Ignores the events of a connection."""

    def connection_lost(self, connection: Connection) -> None:
        """Do nothing."""

    def connection_stalled(self, connection: Connection) -> None:
        """Do nothing."""


@contextlib.asynccontextmanager
async def member_alone(folder: Path, segment_size_bytes: int = 1 << 20) -> AsyncIterator[str]:
    """Run member n0 of the group g; yields its address."""
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": f"127.0.0.1:{next(_ports)}"},
        store_base_dir=str(folder), listen_host="127.0.0.1", http_port=next(_ports),
        heartbeat_interval_ms=20, election_timeout_ms=50,
        segment_size_bytes=segment_size_bytes, index_segment_size_bytes=160 << 10,
    )  # fmt: skip
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    yield settings.address
    stop.set()
    await serving


@contextlib.asynccontextmanager
async def connection_to(client: DLedgerClient) -> AsyncIterator[Connection]:
    """Open a connection to the only member of a group, which is up, without a client."""
    [server] = client.servers
    address = ServerAddress(host=server.host, port=server.port, member_id="n0")
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(address, IgnoringOwner(), stall_s=60), address.host, address.port
    )
    yield connection
    connection.abort("the test is over")
    await connection.closed.wait()
