"""Reads on a member that does not lead: which it answers, with what, and when."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_formats.log.runs import bodies_of
from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.follow import ONLY_THE_ENDS, FollowRequest, FollowResponse
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.read_range import ReadRangeRequest, ReadRangeResponse
from dledger_formats.protocol.requests import Consistency, GetEntriesRequest, GetEntriesResponse
from dledger_node.raft.messages import HeartBeatRequest
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_wire.played import Client, elect, make_server, push_of_another_leader, saved

Code = DLedgerResponseCode
LINEARIZABLE, STALE = Consistency.LINEARIZABLE, Consistency.STALE
BODIES = [b"one", b"two"]
END = len(BODIES)


class Reader(Client):
    """A client's connection that keeps the frames of the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[RemotingCommand] = []
        self._decoder = FrameDecoder()

    def send(self, data: bytes) -> None:
        self.frames += self._decoder.feed(data)


class Follower:
    """Member n0, which follows n1 in term 2 and has an empty entry and BODIES."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.core = make_server(folder)
        self.asked: list[PeerMessage] = []
        monkeypatch.setattr(self.server._links._links["n1"], "send", self.asked.append)
        self.reader = Reader()
        self._folder = folder

    async def take_entries(self) -> None:
        """Lose the first term to n1, and take its entries."""
        await elect(self.server, self.core)
        push = push_of_another_leader(self._folder, BODIES)
        self.server.clients.peers.receive(dataclasses.replace(push, committed_index=-1))
        await saved(self.server)
        self.asked.clear()

    @property
    def questions(self) -> list[ReadIndexRequest]:
        return [message for message in self.asked if isinstance(message, ReadIndexRequest)]

    def commit(self) -> None:
        """Let the leader tell that the entries are committed."""
        self.server.clients.peers.receive(
            HeartBeatRequest(sender="n1", receiver="n0", term=2, committed_index=END, round=1)
        )
        assert self.core.readable_index == END

    def answer_question(self, index: int) -> None:
        question = self.questions[-1]
        self.server.clients.peers.receive(
            ReadIndexResponse(
                sender="n1", receiver="n0", incarnation=question.incarnation,
                round=question.round, index=index,
            )
        )  # fmt: skip

    def lose_leader(self) -> None:
        while self.core.leader_id is not None:
            self.server._core_loop.tick()

    async def get(self, index: int, consistency: Consistency | None) -> None:
        request = GetEntriesRequest(
            group="g", remote_id="n0", begin_index=index, consistency=consistency
        )
        self.server.clients.get(self.reader, request, self._reply)
        await asyncio.sleep(0)

    async def follow(
        self, index: int, consistency: Consistency | None, *, wait_ms: int = 0
    ) -> None:
        request = FollowRequest(
            group="g", remote_id="n0", begin_index=index, wait_ms=wait_ms, consistency=consistency
        )
        self.server.clients.follow(self.reader, 1, request)
        await asyncio.sleep(0)

    async def read_range(
        self, index: int, consistency: Consistency | None, *, wait_ms: int = 0
    ) -> None:
        request = ReadRangeRequest(
            group="g", remote_id="n0", begin_index=index, wait_ms=wait_ms, max_size=1 << 20,
            consistency=consistency,
        )  # fmt: skip
        self.server.clients.read_range(self.reader, 1, request)
        await asyncio.sleep(0)

    def _reply(self, answer: requests.Message) -> None:
        self.reader.frames.append(RemotingCommand(code=200, opaque=1, body=answer.to_json()))

    @property
    def codes(self) -> list[Code]:
        """The codes of all answers so far."""
        bodies = [bytes(frame.body) for frame in self.reader.frames]
        return [
            (
                requests.Response.from_json(body)
                if body.startswith(b"{")
                else ReadRangeResponse.from_bytes(body)
            ).code
            for body in bodies
        ]


@pytest.fixture
async def follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Follower]:
    """A played follower, which has committed its whole log."""
    member = Follower(tmp_path, monkeypatch)
    await member.take_entries()
    member.commit()
    yield member
    await member.server.close()


READS = [Follower.get, Follower.follow, Follower.read_range]


@pytest.mark.parametrize("read", READS)
async def test_a_read_that_names_no_consistency_is_for_the_leader(
    follower: Follower, read: object
) -> None:
    for index in (0, END, END + 1):
        await read(follower, index, None)  # type: ignore[operator]

    assert follower.codes == [Code.NOT_LEADER] * 3
    assert follower.questions == []


@pytest.mark.parametrize("consistency", Consistency)
async def test_a_committed_entry_is_answered_without_the_leader(
    follower: Follower, consistency: Consistency
) -> None:
    await follower.get(1, consistency)
    await follower.follow(1, consistency)
    await follower.read_range(1, consistency)
    got, followed, ranged = (bytes(frame.body) for frame in follower.reader.frames)

    assert [entry.body for entry in GetEntriesResponse.from_json(got).entries] == [b"one"]
    assert [entry.body for entry in FollowResponse.from_json(followed).entries] == [b"one"]
    assert bodies_of(ReadRangeResponse.from_bytes(ranged).stored, 1) == BODIES
    assert follower.questions == []


@pytest.mark.parametrize("read", [Follower.get, Follower.read_range])
async def test_the_end_of_the_log_is_told_once_the_leader_has_proved_it(
    follower: Follower, read: object
) -> None:
    await read(follower, END + 1, LINEARIZABLE)  # type: ignore[operator]
    assert (follower.codes, len(follower.questions)) == ([], 1)
    follower.answer_question(END)
    await asyncio.sleep(0)

    assert follower.codes == [Code.INDEX_OUT_OF_RANGE]


async def test_the_ends_of_the_log_are_told_once_the_leader_has_proved_them(
    follower: Follower,
) -> None:
    await follower.follow(ONLY_THE_ENDS, LINEARIZABLE)
    assert follower.codes == []
    follower.answer_question(END)
    await asyncio.sleep(0)
    answer = FollowResponse.from_json(bytes(follower.reader.frames[0].body))

    assert (answer.code, answer.committed_index, answer.leader_id) == (Code.SUCCESS, END, "n1")


@pytest.mark.parametrize("read", READS)
async def test_a_stale_read_is_answered_from_what_the_member_has(
    follower: Follower, read: object
) -> None:
    follower.lose_leader()
    await read(follower, END + 1, STALE)  # type: ignore[operator]

    expected = Code.SUCCESS if read is Follower.follow else Code.INDEX_OUT_OF_RANGE
    assert (follower.codes, follower.questions) == ([expected], [])


@pytest.mark.parametrize("read", READS)
async def test_a_linearizable_read_beyond_the_end_is_refused_without_a_leader(
    follower: Follower, read: object
) -> None:
    follower.lose_leader()
    await read(follower, END + 1, LINEARIZABLE)  # type: ignore[operator]

    assert follower.codes == [Code.NOT_LEADER]


async def test_a_read_of_what_the_leader_has_waits_until_it_is_committed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(tmp_path, monkeypatch)
    await follower.take_entries()
    assert follower.core.committed_index == -1
    await follower.get(1, LINEARIZABLE)
    follower.answer_question(END)
    await asyncio.sleep(0)
    assert follower.codes == []
    follower.commit()
    await asyncio.sleep(0)

    assert follower.codes == [Code.SUCCESS]
    await follower.server.close()


@pytest.mark.parametrize("read", [Follower.follow, Follower.read_range])
async def test_a_read_may_wait_for_an_entry_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: object
) -> None:
    follower = Follower(tmp_path, monkeypatch)
    await follower.take_entries()
    for consistency in Consistency:
        await read(follower, END, consistency, wait_ms=20_000)  # type: ignore[operator]
    assert follower.codes == []
    follower.commit()
    for _ in range(2):
        await asyncio.sleep(0)

    assert follower.codes == [Code.SUCCESS] * 2
    assert follower.questions == []
    await follower.server.close()


@pytest.mark.parametrize("read", [Follower.follow, Follower.read_range])
async def test_a_read_that_waits_is_refused_when_the_leader_is_lost_unless_it_may_be_stale(
    follower: Follower, read: object
) -> None:
    for consistency in Consistency:
        await read(follower, END + 1, consistency, wait_ms=20_000)  # type: ignore[operator]
    assert follower.codes == []
    follower.lose_leader()
    await asyncio.sleep(0)
    assert follower.codes == [Code.NOT_LEADER]
    await read(follower, END + 1, LINEARIZABLE, wait_ms=20_000)  # type: ignore[operator]

    assert follower.codes == [Code.NOT_LEADER] * 2


async def test_a_removed_entry_is_refused_as_on_the_leader(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(follower.core), "ledger_begin_index", property(lambda _: 2))
    for read in READS:
        await read(follower, 1, LINEARIZABLE)

    assert follower.codes == [Code.INDEX_LESS_THAN_LOCAL_BEGIN] * 3
