"""Clients that pull as fast as they can: no turn of a member's event loop is long."""

import asyncio
from collections.abc import Iterator

import pytest

from dledger_broker_client.client import BrokerClient, pull_ext, send_ext
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_group.floods import flood
from dledger_group.turns import rounds_of_short_turns
from tools.groups.broker_group import BrokerGroup

pytestmark = pytest.mark.fuzz
QUEUES = 8
STORED = 4000
IN_FLIGHT = 200
CONNECTIONS = 12
PIPELINED = 100


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """A member with messages of 1 KiB in eight queues by turns; one in eight has a rare tag."""
    with BrokerGroup(tmp_path_factory.mktemp("group"), 1, election_timeout_ms=4000) as running:
        with BrokerClient(running.broker_addresses[running.master()]) as client:
            for begin in range(0, STORED, IN_FLIGHT):
                sent = [send(client, number) for number in range(begin, begin + IN_FLIGHT)]
                for opaque in sent:
                    assert client.answer(opaque).code == ResponseCode.SUCCESS
            client.wait_until_visible("flood", STORED // QUEUES)
        yield running


def send(client: BrokerClient, number: int) -> int:
    tag = "rare" if number // QUEUES % 8 == 0 else "usual"
    ext = send_ext("flood", d=str(QUEUES), e=str(number % QUEUES), i=f"TAGS\x01{tag}\x02")
    return client.begin(RequestCode.SEND_MESSAGE_V2, ext, bytes(1024))


def pulls(tags: str, messages: int) -> bytes:
    """Return pulls of all queues, each from another offset."""
    fields = {"maxMsgNums": str(messages), "subscription": tags}
    return b"".join(
        frames.encode(
            RemotingCommand(
                code=RequestCode.PULL_MESSAGE,
                opaque=number,
                ext_fields=pull_ext("flood", number * 4, queueId=str(number % QUEUES)) | fields,
            )
        )
        for number in range(PIPELINED)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("messages", [32, 64])
@pytest.mark.parametrize("tags", ["*", "usual", "rare"])
async def test_no_number_of_pulls_makes_a_turn_long(
    group: BrokerGroup, tags: str, messages: int
) -> None:
    member = group.master()
    address, data = group.broker_addresses[member], pulls(tags, messages)
    for _ in rounds_of_short_turns(group, [member]):
        received = await asyncio.gather(*(flood(address, data) for _ in range(CONNECTIONS)))

    assert min(received) > 0, "every connection got answers"
