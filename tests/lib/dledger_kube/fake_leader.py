"""A group of fake members whose leader accepts membership changes over real connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from dledger_formats.http.status import PeerStatus, Role
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.membership_change import (
    CHANGE_MEMBERSHIP,
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_kube.fake_members import FakeMember
from dledger_kube.objects import node_status
from dledger_operator import names
from dledger_wire.accepting import close_accepting

Answer = Callable[[RemotingCommand], bytes | None]


@contextlib.asynccontextmanager
async def remoting(ip: str, port: int, answer: Answer) -> AsyncIterator[int]:
    """Answer every request on a port, and yield the port. Requests for which `answer` returns None
    get no answer.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        writers.add(writer)
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                for command in decoder.feed(chunk):
                    body = answer(command)
                    if body is not None:
                        writer.write(frames.encode_responses([(command.opaque, body)]))
        writer.close()

    writers: set[asyncio.StreamWriter] = set()

    server = await asyncio.start_server(serve, ip, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close_accepting(server)
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class FakeGroup:
    """Fake members; the first `voters` of them vote. All report a change as soon as it is made, and
    no follower lacks an entry.
    """

    def __init__(self, nodes: list[FakeMember], voters: int) -> None:
        self.nodes = nodes
        self.voters = [node.member_id for node in nodes[:voters]]
        self.learners: list[str] = []
        self.changes: list[tuple[str, str]] = []
        """The changes that were made; a repeated request adds none, as in a real member."""
        self.transfers: list[tuple[str, str]] = []
        self.leader = ""
        self._electing: asyncio.Task[None] | None = None
        self.term = 0

    async def elect(self, member_id: str, term: int) -> None:
        """Make a member the leader of a term."""
        self.leader, self.term = member_id, term
        self.tell_statuses()
        for node in self.nodes:
            await node.say(term, member_id)

    def serve(self) -> contextlib.AbstractAsyncContextManager[int]:
        """Accept requests at the leader's address."""
        leading = next(node for node in self.nodes if node.member_id == self.leader)
        return remoting(leading.ip, names.REMOTING_PORT, self._answer)

    @contextlib.asynccontextmanager
    async def serve_all(self) -> AsyncIterator[None]:
        """Accept requests at every member's address, so that the leader may change."""
        async with contextlib.AsyncExitStack() as stack:
            for node in self.nodes:
                served = remoting(node.ip, names.REMOTING_PORT, self._answer)
                await stack.enter_async_context(served)
            yield

    async def _transfer(self, command: RemotingCommand) -> None:
        request = LeadershipTransferRequest.from_json(command.body)
        self.transfers.append((self.leader, request.transferee_id))
        await self.elect(request.transferee_id, self.term + 1)

    def _answer(self, command: RemotingCommand) -> bytes:
        if command.code == RequestCode.LEADERSHIP_TRANSFER:
            self._electing = asyncio.create_task(self._transfer(command))
            return LeadershipTransferResponse(group="flights").to_json()
        assert command.code == CHANGE_MEMBERSHIP
        request = ChangeMembershipRequest.from_json(command.body)
        assert request.remote_id == self.leader
        self._make(request.change, request.member_id)
        return ChangeMembershipResponse(
            group="flights", leader_id=self.leader, term=self.term,
            voters=tuple(self.voters), learners=tuple(self.learners),
        ).to_json()  # fmt: skip

    def _make(self, change: ChangeKind, member_id: str) -> None:
        """Make a change, unless it was already made and its answer was perhaps late."""
        before = (tuple(self.voters), tuple(self.learners))
        for ids in (self.voters, self.learners):
            if member_id in ids:
                ids.remove(member_id)
        if change is ChangeKind.ADD_LEARNER:
            self.learners.append(member_id)
        elif change is ChangeKind.PROMOTE:
            self.voters.append(member_id)
        if (tuple(self.voters), tuple(self.learners)) != before:
            self.changes.append((change.value, member_id))
        self.tell_statuses()

    def tell_statuses(self) -> None:
        """Let each member report the current group, and the leader the members that it reaches."""
        members = {*self.voters, *self.learners}
        silent = {node.member_id for node in self.nodes if not node.answers}
        every = [names.member_id(ordinal) for ordinal in range(names.REPLICAS_MAX)]
        followers = [
            PeerStatus(peer_id=each, match_index=99, reachable=each not in silent)
            for each in sorted(members)
        ]
        for node in self.nodes:
            leads = node.member_id == self.leader
            node.status = replace(
                node_status(node.member_id, term=self.term, leader_id=self.leader),
                role=Role.LEADER if leads else Role.FOLLOWER,
                master=leads,
                followers=followers if leads else [],
                voters=sorted(self.voters),
                learners=sorted(self.learners),
                addable=[each for each in every if each not in members],
                membership_index=50,
            )
