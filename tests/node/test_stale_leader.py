"""A leader that was stopped while the others went on: what it answers when it wakes."""

import contextlib
import socket

from dledger_client.client import DLedgerClient
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode
from dledger_formats.protocol.follow import FOLLOW, ONLY_THE_ENDS, FollowRequest, FollowResponse
from dledger_formats.protocol.requests import MetadataRequest
from dledger_group.wire import connect
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

CONNECTIONS = 10
THE_QUESTION = 2


def answer_on(connection: socket.socket) -> FollowResponse:
    decoder = frames.FrameDecoder()
    while True:
        for answer in decoder.feed(connection.recv(65536)):
            if answer.opaque == THE_QUESTION:
                return FollowResponse.from_json(answer.body)


async def test_a_leader_that_wakes_does_not_answer_an_old_end(group: NodeGroup) -> None:
    old = group.master()
    ends = FollowRequest(group="g", remote_id=old, begin_index=ONLY_THE_ENDS).to_json()
    metadata = MetadataRequest(group="g", remote_id=old).to_json()
    async with DLedgerClient(servers=group.servers, group="g", at_least_once=True) as client:
        await client.append(b"before")
        with contextlib.ExitStack() as closing:
            connections = [closing.enter_context(connect(group, old)) for _ in range(CONNECTIONS)]
            await client.bounds()
            group.freeze(old)
            # The kernel reports sockets in the order in which they got data. So the leader reads
            # these before those of its peers, also what is sent later.
            for connection in connections:
                connection.sendall(frames.encode_requests(RequestCode.METADATA, [(1, metadata)]))
            wait_for(
                lambda: any(
                    group.status(member).master for member in group.running() if member != old
                ),
                "another master",
            )
            acknowledged = await client.append(b"after")
            for connection in connections:
                connection.sendall(frames.encode_requests(FOLLOW, [(THE_QUESTION, ends)]))
            group.thaw(old)
            answers = [answer_on(connection) for connection in connections]

    for answer in answers:
        assert (
            answer.code is DLedgerResponseCode.NOT_LEADER
            or answer.committed_index >= acknowledged.index
        )
