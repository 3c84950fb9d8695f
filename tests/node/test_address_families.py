"""Members listen at addresses of IPv4 and IPv6, and call each other at either."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.addresses import ServerAddress
from dledger_formats.peers import split_address
from dledger_formats.settings import NodeSettings
from dledger_node.config import join_address
from dledger_wire.families import needs_ipv6
from tools.groups.node_group import NodeGroup

BY_DEFAULT = NodeSettings(group="g", self_id="n0", peers={"n0": "n0:1"}, store_base_dir="/data")


class OpenGroup(NodeGroup):
    """Members that know each other by their addresses of IPv6, and listen wherever they can."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        ports = {member: split_address(address)[1] for member, address in self.peers.items()}
        self.peers = {member: join_address("::1", port) for member, port in ports.items()}

    def settings(self, member: str) -> NodeSettings:
        """Return a member's settings."""
        return replace(super().settings(member), listen_host=BY_DEFAULT.listen_host)


@pytest.fixture
def open_group(tmp_path: Path) -> Iterator[OpenGroup]:
    with OpenGroup(tmp_path) as running:
        yield running


@needs_ipv6
@pytest.mark.group
async def test_members_at_addresses_of_ipv6_serve_clients_of_both_families(
    open_group: OpenGroup,
) -> None:
    master = await asyncio.to_thread(open_group.master)
    port = split_address(open_group.peers[master])[1]

    for host in ("::1", "127.0.0.1"):
        server = str(ServerAddress(host=host, port=port))
        async with DLedgerClient(servers=[server], group="g") as client:
            await client.append(b"a")
        pages = HTTPConnection(host, open_group.http_ports[master], timeout=10)
        pages.request("GET", "/healthz")
        assert pages.getresponse().status == 200
        pages.close()


def test_the_brackets_of_an_address_are_no_part_of_its_host() -> None:
    assert split_address("[fd00::1]:40911") == ("fd00::1", 40911)
    assert split_address("10.0.0.1:40911") == ("10.0.0.1", 40911)
    assert join_address("fd00::1", 40911) == "[fd00::1]:40911"
    assert join_address("n0.flights", 40911) == "n0.flights:40911"
