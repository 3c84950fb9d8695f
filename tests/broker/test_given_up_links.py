"""A link that a member has given up: what it had sent must not reach the leader later."""

import asyncio
import socket

import pytest

from dledger_broker.door.between_members.door_frames import DoorRequest, request_bytes
from dledger_broker.door.between_members.door_link import DoorLink
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.metrics import BrokerCounters
from dledger_broker_client.played_leaders import Group
from dledger_formats.rocketmq.codes import RequestCode

RECEIVE_BUFFER_BYTES = 4096
BODY_BYTES = 200_000
HELLO = b"hello"


def request() -> DoorRequest:
    """Return a request that the leader's kernel cannot take as a whole."""
    body, code = bytes(BODY_BYTES), int(RequestCode.UPDATE_CONSUMER_OFFSET)
    return DoorRequest(1, code, 1, 0, 0, None, body, bytes(8), -1, 0, 0)


async def read_all(accepted: socket.socket) -> int:
    """Read to the orderly end of a connection; return how many bytes came."""
    loop, count = asyncio.get_running_loop(), 0
    while data := await loop.sock_recv(accepted, 1 << 20):
        count += len(data)
    return count


async def give_up(listener: socket.socket) -> int:
    """Send a request to a leader that reads nothing, give the link up, and let the leader read."""
    loop = asyncio.get_running_loop()
    group = Group()
    owner = ToLeader(group, group.open_link, group.serve, BrokerCounters(), loop.time)  # type: ignore[arg-type]
    link = DoorLink(owner, "n1", 1)
    link.open(*listener.getsockname(), HELLO)
    accepted, _ = await loop.sock_accept(listener)
    with accepted:
        assert await loop.sock_recv(accepted, len(HELLO)) == HELLO
        sent = request()
        link.send(sent, request_bytes(sent.body, sent.ext_fields))
        await loop.sock_recv(accepted, 1)  # it is on its way
        link.abort()
        return await read_all(accepted)


def test_what_a_link_has_sent_is_dropped_when_it_is_given_up() -> None:
    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            listener.setblocking(False)
            with pytest.raises(ConnectionResetError):
                await give_up(listener)

    asyncio.run(asyncio.wait_for(play(), 30))
