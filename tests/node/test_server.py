"""A server in this process, whose peers and clients a test plays."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_formats.settings import NodeSettings
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
from dledger_node.remoting.service import AppendCall, BatchCall
from dledger_node.services.append import GATHERED_BYTES_MAX, GATHERED_MAX
from dledger_node.shell.server import DLedgerServer
from dledger_node.store.log.log_store import LogStore

SEGMENT_BYTES = 1 << 18


class Client(Connection):
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.answers: list[requests.AppendEntryResponse] = []

    def send(self, data: bytes) -> None:
        for command in frames.FrameDecoder().feed(data):
            self.answers.append(requests.AppendEntryResponse.from_json(command.body))


def open_store(folder: Path) -> LogStore:
    return LogStore.open(
        folder, segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=SEGMENT_BYTES
    )


def make_server(
    folder: Path,
    save_hard_state: Callable[[HardState], None] = lambda _: None,
    pending_requests_max: int = 1000,
) -> tuple[DLedgerServer, Raft]:
    peers = dict.fromkeys(("n0", "n1", "n2"), "127.0.0.1:1")
    settings = NodeSettings(
        group="g",
        self_id="n0",
        peers=peers,
        store_base_dir=str(folder),
        segment_size_bytes=SEGMENT_BYTES,
        index_segment_size_bytes=SEGMENT_BYTES,
        pending_requests_max=pending_requests_max,
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


async def test_bodies_that_came_together_become_entries_and_get_one_answer(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    elect(server, core)
    single, first, second = Client(), Client(), Client()
    server.append_batches([BatchCall(first, 7, [b"a", b"b", b"c"]), BatchCall(second, 8, [b"d"])])
    server.append([AppendCall(single, 9, b"e")])
    await asyncio.sleep(0)
    assert core.ledger_end_index == 5, "one proposal, behind the entry of the term"

    for index in (3, 5):
        for peer_id in ("n1", "n2"):
            server.peer_message(confirmed(peer_id, index))
        if index == 3:
            assert [answer.index for answer in single.answers] == [1], "singles go first"
            assert not first.answers, "of its three entries two are committed"

    assert [(answer.code, answer.index) for answer in first.answers] == [
        (DLedgerResponseCode.SUCCESS, 2)
    ]
    assert [(answer.index, answer.pos) for answer in second.answers] == [
        (5, first.answers[0].pos + 3 * (disk.ENTRY_HEADER_SIZE + 1))
    ]
    assert server.counters().appends_acknowledged == 5
    await server.close()


async def test_a_batch_whose_entries_lose_their_place_is_of_unknown_outcome(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    elect(server, core)
    client = Client()
    server.append_batches([BatchCall(client, 7, [b"mine", b"too"])])
    await asyncio.sleep(0)
    assert core.ledger_end_index == 2

    server.peer_message(push_of_another_leader(tmp_path, [b"another's"]))
    await asyncio.sleep(0)

    assert [answer.code for answer in client.answers] == [
        DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    ]
    assert server.counters().appends_unknown == 2
    await server.close()


@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        ([b""] * 11, DLedgerResponseCode.UNSUPPORTED),
        ([b""] * 8, DLedgerResponseCode.LEADER_PENDING_FULL),
        ([b"", bytes(SEGMENT_BYTES)], DLedgerResponseCode.DISK_ERROR),
    ],
    ids=["more-than-may-ever-wait", "more-than-may-wait-now", "one-no-entry-can-hold"],
)
async def test_a_batch_is_refused_as_a_whole(
    tmp_path: Path, bodies: list[bytes], code: DLedgerResponseCode
) -> None:
    server, core = make_server(tmp_path, pending_requests_max=10)
    elect(server, core)
    refused, taken = Client(), Client()
    server.append([AppendCall(Client(), number, b"") for number in range(3)])
    server.append_batches([BatchCall(refused, 7, bodies), BatchCall(taken, 8, [b"small"] * 7)])
    await asyncio.sleep(0)

    assert [answer.code for answer in refused.answers] == [code]
    assert core.ledger_end_index == 10, "what fits is taken"
    assert server.counters().appends_refused == len(bodies)
    await server.close()


async def test_who_does_not_lead_refuses_a_batch(tmp_path: Path) -> None:
    server, _ = make_server(tmp_path)
    client = Client()
    server.append_batches([BatchCall(client, 7, [b"a", b"b"])])
    await asyncio.sleep(0)

    assert [answer.code for answer in client.answers] == [DLedgerResponseCode.NOT_LEADER]
    await server.close()


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
