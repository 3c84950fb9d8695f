"""A server in this process, whose peers and clients a test plays."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger_formats import frames, requests
from dledger_formats.requests import DLedgerResponseCode
from dledger_formats.settings import NodeSettings
from dledger_node.appends import GATHERED_BYTES_MAX, GATHERED_MAX
from dledger_node.config import raft_config
from dledger_node.errors import StoreError
from dledger_node.raft.core import Raft
from dledger_node.raft.log_terms import LogTerms
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import (
    AppendRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    PreVoteResponse,
    PushResponse,
    PushResult,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import HardState
from dledger_node.remoting.connection import Connection
from dledger_node.remoting.service import AppendCall
from dledger_node.server import DLedgerServer
from dledger_node.store.mmap_store import MmapStore

SEGMENT_BYTES = 1 << 18


class Client(Connection):
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.answers: list[requests.AppendEntryResponse] = []

    def send(self, data: bytes) -> None:
        for command in frames.FrameDecoder().feed(data):
            self.answers.append(requests.AppendEntryResponse.from_json(command.body))


def open_store(folder: Path) -> MmapStore:
    return MmapStore.open(
        folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=SEGMENT_BYTES
    )


def make_server(
    folder: Path, save_hard_state: Callable[[HardState], None] = lambda _: None
) -> tuple[DLedgerServer, Raft]:
    peers = dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1")
    settings = NodeSettings(
        group="g",
        self_id="n0",
        peers=peers,
        store_base_dir=str(folder),
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=SEGMENT_BYTES,
    )
    core = Raft(
        raft_config(settings),
        HardState(term=0, vote_for=None),
        LogTerms(),
        committed_index=-1,
        incarnation=1,
        randint=lambda low, _: low,
    )
    server = DLedgerServer(
        settings,
        core,
        open_store(folder / "n0"),
        save_hard_state=save_hard_state,
        version="test",
        uniform=lambda low, _: low,
    )
    return server, core


def elect(server: DLedgerServer, core: Raft) -> None:
    """Let n0 win the first election, with the vote of n1."""
    while core.role is Role.FOLLOWER:
        core.tick()
    promise = PreVoteResponse(
        sender="n1", receiver="n0", term=0, requested_term=0, result=VoteResult.ACCEPT
    )
    server.peer_message(promise)
    vote = VoteResponse(
        sender="n1", receiver="n0", term=1, requested_term=1, result=VoteResult.ACCEPT
    )
    server.peer_message(vote)
    assert core.leader_id == "n0"


def push_of_another_leader(folder: Path, bodies: Sequence[bytes]) -> AppendRequest:
    """What n1, the leader of term 2, pushes: other entries at the same indexes, all committed."""
    other = open_store(folder / "n1")
    other.append_noop(2)
    _, last_index = other.append_bodies(bodies, 2)
    views, _ = other.read_range(0, last_index, 1 << 20)
    entries = memoryview(b"".join(views))
    other.close()
    return AppendRequest(
        sender="n1",
        receiver="n0",
        term=2,
        previous_index=-1,
        previous_term=-1,
        first_index=0,
        last_index=last_index,
        entries_term=2,
        committed_index=last_index,
        entries=entries,
    )


@pytest.mark.parametrize(("count", "body_bytes"), [(GATHERED_MAX, 1), (4, GATHERED_BYTES_MAX // 4)])
async def test_many_appends_are_proposed_before_the_rest_is_read(
    tmp_path: Path, count: int, body_bytes: int
) -> None:
    server, core = make_server(tmp_path)
    elect(server, core)
    body = bytes(body_bytes)
    calls = [AppendCall(Client(), number, body) for number in range(count)]

    server.append(calls[:-1])
    assert core.ledger_end_index == 0, "they wait for others"
    server.append(calls[-1:])
    assert core.ledger_end_index == count
    server.append([AppendCall(Client(), 0, b"more")])
    assert core.ledger_end_index == count
    await asyncio.sleep(0)

    assert core.ledger_end_index == count + 1
    await server.close()


async def test_an_append_whose_place_another_leader_took_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    """A leader that is deposed while appends wait calls none of them acknowledged."""
    server, core = make_server(tmp_path)
    elect(server, core)
    client = Client()
    server.append([AppendCall(client, 7, b"mine")])
    await asyncio.sleep(0)  # the turn of the loop in which appends are gathered ends
    assert core.ledger_end_index == 1

    server.peer_message(push_of_another_leader(tmp_path, [b"another's"]))
    await asyncio.sleep(0)

    assert core.committed_index == 1, "the other leader's entry is committed where mine was"
    assert [answer.code for answer in client.answers] == [
        DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    ]
    await server.close()


def confirmed(peer_id: str, match_index: int, *, probe: int | None = None) -> PushResponse:
    return PushResponse(
        sender=peer_id, receiver="n0", term=1, requested_term=1, result=PushResult.SUCCESS,
        match_index=match_index, ledger_end_index=match_index, probe=probe,
    )  # fmt: skip


async def test_what_is_not_committed_is_read_by_nobody(tmp_path: Path) -> None:
    """DLedger's leader hands out whatever it has stored."""
    server, core = make_server(tmp_path)
    elect(server, core)
    answers: list[requests.GetEntriesResponse] = []
    first, second, both = (
        requests.GetEntriesRequest(group="g", remote_id="n0", begin_index=index, max_size=size)
        for index, size in ((0, 0), (1, 0), (0, 1 << 20))
    )
    server.get(first, answers.append)
    assert answers.pop().code is DLedgerResponseCode.NOT_LEADER, "it does not know yet"
    server.peer_message(confirmed("n1", -1, probe=1))
    for peer_id in ("n1", "n2"):
        server.peer_message(confirmed(peer_id, 0))
    assert core.master
    server.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)

    server.get(both, answers.append)
    assert [entry.index for entry in answers.pop().entries] == [0]
    server.get(second, answers.append)
    assert not answers, "whether there is more is not known yet"
    for round_ in range(1, 4):
        server.peer_message(
            HeartBeatResponse(sender="n1", receiver="n0", term=1, round=round_, joining=False)
        )
    assert answers.pop().code is DLedgerResponseCode.INDEX_OUT_OF_RANGE

    for peer_id in ("n1", "n2"):
        server.peer_message(confirmed(peer_id, 1))
    server.get(both, answers.append)
    assert [entry.body for entry in answers.pop().entries] == [b"", b"mine"]
    await server.close()


async def test_a_disk_that_cannot_make_a_segment_stops_the_member_and_refuses_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error went to the loop alone, and who appended waited for ever."""
    server, core = make_server(tmp_path)
    elect(server, core)
    client = Client()

    def broken(*_: object) -> None:
        raise StoreError("a segment could not be allocated: Input/output error")

    monkeypatch.setattr(server._store, "reserve", broken)
    server.append([AppendCall(client, 7, b"mine")])
    with pytest.raises(StoreError, match="could not be allocated"):
        await asyncio.wait_for(server.fatal, 10)

    assert [answer.code for answer in client.answers] == [DLedgerResponseCode.DISK_FULL]
    monkeypatch.undo()
    await server.close()


async def test_a_member_that_must_stop_believes_and_promises_nothing_more(tmp_path: Path) -> None:
    saved: list[int] = []

    def save(hard_state: HardState) -> None:
        saved.append(hard_state.term)
        if hard_state.term > 1:
            raise StoreError("the term could not be saved: Input/output error")

    server, core = make_server(tmp_path, save)
    elect(server, core)
    for term in (7, 8):
        server.peer_message(
            HeartBeatRequest(sender="n1", receiver="n0", term=term, committed_index=-1, round=1)
        )
        assert server.fatal.done()

    assert (saved, core.term) == ([1, 7], 7)
    with pytest.raises(StoreError, match="could not be saved"):
        await server.fatal
    await server.close()
