"""Clients that ask for entries as fast as they can: no turn of the leader's loop is long."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.follow import FOLLOW, FollowRequest
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.read_range import READ_RANGE, ReadRangeRequest
from dledger_formats.protocol.requests import Consistency, GetEntriesRequest
from dledger_group.floods import flood
from dledger_group.turns import rounds_of_short_turns
from tools.groups.node_group import NodeGroup
from tools.groups.turns import LARGEST_ENTRY_TURN_S_MAX, TURN_S_MAX

pytestmark = pytest.mark.fuzz
CONNECTIONS = 12
PIPELINED = 200
SMALL_ENTRIES = 20_000
ALL = (1 << 31) - 1


class Leader(NamedTuple):
    """A leader with small entries, and one of the largest size after them."""

    group: NodeGroup
    member: str
    largest_index: int

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return self.group.peers[self.member]


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leader]:
    """A group with a leader that a busy machine does not depose."""
    folder: Path = tmp_path_factory.mktemp("group")
    with NodeGroup(
        folder, heartbeat_interval_ms=250, election_timeout_ms=4000, segment_size_bytes=16 << 20
    ) as group:
        member = group.master()
        with BlockingClient(group.servers, "g") as client:
            for _ in range(SMALL_ENTRIES // 4000):
                client.append_batch([bytes(8)] * 4000)
            largest = client.append(bytes(disk.BODY_SIZE_MAX))
        yield Leader(group, member, largest.index)


def request_of(
    code: int, member: str, begin_index: int, consistency: Consistency | None = None
) -> bytes:
    kinds = {
        RequestCode.GET: GetEntriesRequest, FOLLOW: FollowRequest, READ_RANGE: ReadRangeRequest,
    }  # fmt: skip
    request = kinds[code](
        group="g", remote_id=member, begin_index=begin_index, max_size=ALL, consistency=consistency
    )
    return request.to_json()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("code", [RequestCode.GET, FOLLOW, READ_RANGE])
async def test_no_number_of_reads_makes_a_turn_long(leader: Leader, code: int) -> None:
    requests = [(number, request_of(code, leader.member, number)) for number in range(PIPELINED)]
    data = frames.encode_requests(code, requests)
    for _ in rounds_of_short_turns(leader.group, [leader.member], TURN_S_MAX):
        received = await asyncio.gather(*(flood(leader.address, data) for _ in range(CONNECTIONS)))

    assert min(received) > 0, "every connection got answers"
    assert leader.group.status(leader.member).master


@pytest.mark.sampled(1)
@pytest.mark.parametrize("code", [RequestCode.GET, FOLLOW, READ_RANGE])
async def test_reads_for_which_a_follower_asks_its_leader_make_no_turn_long(
    leader: Leader, code: int
) -> None:
    group = leader.group
    follower = min(member for member in group.peers if member != leader.member)
    beyond = leader.largest_index + 1000
    requests = [
        (number, request_of(code, follower, beyond, Consistency.LINEARIZABLE))
        for number in range(PIPELINED)
    ]
    data = frames.encode_requests(code, requests)
    address = group.peers[follower]
    for _ in rounds_of_short_turns(group, [follower, leader.member]):
        received = await asyncio.gather(*(flood(address, data) for _ in range(CONNECTIONS)))

    assert min(received) > 0, "every connection got answers"
    assert group.status(leader.member).master


@pytest.mark.sampled(1)
@pytest.mark.parametrize("code", [RequestCode.GET, FOLLOW, READ_RANGE])
async def test_entries_of_the_largest_size_make_no_turn_long(leader: Leader, code: int) -> None:
    requests = [
        (number, request_of(code, leader.member, leader.largest_index)) for number in (1, 2)
    ]
    data = frames.encode_requests(code, requests)
    for _ in rounds_of_short_turns(leader.group, [leader.member], LARGEST_ENTRY_TURN_S_MAX):
        received = await asyncio.gather(*(flood(leader.address, data) for _ in range(3)))

    assert min(received) > 0


async def test_the_largest_entry_as_numbers_makes_no_turn_long(leader: Leader) -> None:
    body = request_of(RequestCode.GET, leader.member, leader.largest_index)
    data = frames.encode(
        RemotingCommand(code=RequestCode.GET, opaque=1, language="JAVA", body=body)
    )
    for _ in rounds_of_short_turns(leader.group, [leader.member], LARGEST_ENTRY_TURN_S_MAX):
        assert await flood(leader.address, data) > 0
