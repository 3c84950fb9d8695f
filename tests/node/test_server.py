"""Appends and reads of a server in this process, whose peers and clients a test plays."""

import asyncio
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol import codes, requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_node.errors import StoreError, StoreFullError
from dledger_node.raft.messages import HeartBeatRequest, HeartBeatResponse
from dledger_node.raft.ready import HardState
from dledger_node.remoting.service import AppendCall, BatchCall
from dledger_node.services.next_proposal import PROPOSE_AT_BYTES, PROPOSE_AT_ENTRIES
from dledger_node.store.segments.segment import Segment
from dledger_wire.played import (
    SEGMENT_BYTES,
    Client,
    become_master,
    confirmed,
    elect,
    make_server,
    push_of_another_leader,
    saved,
)


@pytest.mark.parametrize(
    ("count", "body_bytes"), [(PROPOSE_AT_ENTRIES, 1), (4, PROPOSE_AT_BYTES // 4)]
)
async def test_many_appends_are_proposed_before_the_rest_is_read(
    tmp_path: Path, count: int, body_bytes: int
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    body = bytes(body_bytes)
    calls = [AppendCall(Client(), number, body) for number in range(count)]

    server.clients.appends.append(calls[:-1])
    assert core.ledger_end_index == 0, "they wait until the turn ends"
    server.clients.appends.append(calls[-1:])
    assert core.ledger_end_index == count
    server.clients.appends.append([AppendCall(Client(), 0, b"more")])
    assert core.ledger_end_index == count
    await asyncio.sleep(0)

    assert core.ledger_end_index == count + 1
    await server.close()


async def test_a_server_that_stops_refuses_the_appends_that_it_has_not_proposed(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    client = Client()

    server.clients.appends.append([AppendCall(client, 7, b"late")])
    await server.close()

    assert [answer.code for answer in client.answers] == [DLedgerResponseCode.NOT_LEADER]
    assert core.ledger_end_index == 0, "only the first entry of the term was proposed"


async def test_an_append_whose_place_another_leader_took_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    """A leader that is deposed while appends wait acknowledges none of them."""
    server, core = make_server(tmp_path)
    await elect(server, core)
    client = Client()
    server.clients.appends.append([AppendCall(client, 7, b"mine")])
    await asyncio.sleep(0)  # the turn of the loop in which the appends arrived ends
    assert core.ledger_end_index == 1

    server.clients.peers.receive(push_of_another_leader(tmp_path, [b"another's"]))
    await saved(server)

    assert core.committed_index == 1, "the other leader's entry is committed in its place"
    assert [answer.code for answer in client.answers] == [
        DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    ]
    await server.close()


async def test_the_bodies_of_a_batch_become_entries_and_get_one_answer(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    single, first, second = Client(), Client(), Client()
    server.clients.appends.append_batch(BatchCall(first, 7, [b"a", b"b", b"c"]))
    server.clients.appends.append_batch(BatchCall(second, 8, [b"d"]))
    server.clients.appends.append([AppendCall(single, 9, b"e")])
    await asyncio.sleep(0)
    assert core.ledger_end_index == 5, "one proposal, after the first entry of the term"

    for index in (3, 5):
        for peer_id in ("n1", "n2"):
            server.clients.peers.receive(confirmed(peer_id, index))
        if index == 3:
            assert [answer.index for answer in single.answers] == [1], "single appends come first"
            assert not first.answers, "only two of its three entries are committed"

    assert [(answer.code, answer.index) for answer in first.answers] == [
        (DLedgerResponseCode.SUCCESS, 2)
    ]
    assert [(answer.index, answer.pos) for answer in second.answers] == [
        (5, first.answers[0].pos + 3 * (disk.ENTRY_HEADER_SIZE + 1))
    ]
    assert server.view.counters().appends_acknowledged == 5
    await server.close()


async def test_a_batch_whose_entries_are_replaced_has_an_unknown_outcome(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await elect(server, core)
    client = Client()
    server.clients.appends.append_batch(BatchCall(client, 7, [b"mine", b"too"]))
    await asyncio.sleep(0)
    assert core.ledger_end_index == 2

    server.clients.peers.receive(push_of_another_leader(tmp_path, [b"another's"]))
    await saved(server)

    assert [answer.code for answer in client.answers] == [
        DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    ]
    assert server.view.counters().appends_unknown == 2
    await server.close()


@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        ([b""] * 11, DLedgerResponseCode.UNSUPPORTED),
        ([b""] * 8, DLedgerResponseCode.LEADER_PENDING_FULL),
        ([b"", bytes(SEGMENT_BYTES)], DLedgerResponseCode.UNSUPPORTED),
        ([bytes(SEGMENT_BYTES)], DLedgerResponseCode.UNEXPECTED_ARGUMENT),
    ],
    ids=[
        "more-entries-than-may-ever-wait",
        "more-entries-than-may-wait-now",
        "one-of-the-bodies-too-large-for-an-entry",
        "a-body-too-large-for-an-entry",
    ],
)
async def test_a_batch_is_refused_as_a_whole(
    tmp_path: Path, bodies: list[bytes], code: DLedgerResponseCode
) -> None:
    server, core = make_server(tmp_path, pending_requests_max=10)
    await elect(server, core)
    refused, taken = Client(), Client()
    server.clients.appends.append([AppendCall(Client(), number, b"") for number in range(3)])
    server.clients.appends.append_batch(BatchCall(refused, 7, bodies))
    server.clients.appends.append_batch(BatchCall(taken, 8, [b"small"] * 7))
    await asyncio.sleep(0)

    assert [answer.code for answer in refused.answers] == [code]
    assert core.ledger_end_index == 10, "what fits is taken"
    assert server.view.counters().appends_refused == len(bodies)
    await server.close()


async def test_a_member_that_does_not_lead_refuses_a_batch(tmp_path: Path) -> None:
    server, _ = make_server(tmp_path)
    client = Client()
    server.clients.appends.append_batch(BatchCall(client, 7, [b"a", b"b"]))
    await asyncio.sleep(0)

    assert [answer.code for answer in client.answers] == [DLedgerResponseCode.NOT_LEADER]
    await server.close()


async def test_what_is_not_committed_is_read_by_nobody(tmp_path: Path) -> None:
    """DLedger's leader returns every entry that it has stored."""
    server, core = make_server(tmp_path)
    await elect(server, core)
    answers: list[requests.GetEntriesResponse] = []
    first, second, both = (
        requests.GetEntriesRequest(group="g", remote_id="n0", begin_index=index, max_size=size)
        for index, size in ((0, 0), (1, 0), (0, 1 << 20))
    )
    server.clients.get(Client(), first, answers.append)
    await asyncio.sleep(0)  # the turn in which the read is answered at the latest
    assert answers.pop().code is DLedgerResponseCode.NOT_LEADER, (
        "the leader does not know yet what is committed"
    )
    server.clients.peers.receive(confirmed("n1", -1, probe=1))
    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 0))
    assert core.master
    server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
    await asyncio.sleep(0)

    server.clients.get(Client(), both, answers.append)
    await asyncio.sleep(0)  # the turn in which the read is answered at the latest
    assert [entry.index for entry in answers.pop().entries] == [0]
    server.clients.get(Client(), second, answers.append)
    await asyncio.sleep(0)  # the turn in which the read is answered at the latest
    assert not answers, "the leader has not proved yet that it leads"
    for round_ in range(1, 4):
        server.clients.peers.receive(
            HeartBeatResponse(sender="n1", receiver="n0", term=1, round=round_, joining=False)
        )
    await asyncio.sleep(0)
    assert answers.pop().code is DLedgerResponseCode.INDEX_OUT_OF_RANGE

    for peer_id in ("n1", "n2"):
        server.clients.peers.receive(confirmed(peer_id, 1))
    server.clients.get(Client(), both, answers.append)
    await asyncio.sleep(0)  # the turn in which the read is answered at the latest
    assert [entry.body for entry in answers.pop().entries] == [b"", b"mine"]
    await server.close()


@pytest.mark.parametrize("register", [False, True])
async def test_a_leader_that_transfers_its_leadership_says_so(
    tmp_path: Path, register: bool
) -> None:
    """The leader used to answer NOT_LEADER and name itself as the leader."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    assert core.transfer_leadership("n1") is None
    client = Client()
    answers: list[requests.Message] = []
    if register:
        request = RegisterProducerRequest(group="g", remote_id="n0")
        server.clients.register_producer(request, answers.append)
    else:
        server.clients.appends.append([AppendCall(client, 7, b"mine")])
        await asyncio.sleep(0)
        answers += client.answers

    assert [answer.code for answer in answers] == [DLedgerResponseCode.LEADER_TRANSFERRING]
    assert core.ledger_end_index == 0
    await server.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreFullError("no room"), DLedgerResponseCode.DISK_FULL),
        (StoreError("Input/output error"), DLedgerResponseCode.NOT_LEADER),
    ],
    ids=["full", "broken"],
)
async def test_a_full_volume_and_a_broken_disk_refuse_appends_with_different_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: StoreError, code: DLedgerResponseCode
) -> None:
    """A client waits for room. From a member that leaves the group, it turns to another one."""
    server, core = make_server(tmp_path)
    monkeypatch.setattr(server._disk.group_commit, "_look_ahead", lambda _: None)
    await elect(server, core)
    client = Client()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Segment, "create", fail)
    server.clients.appends.append([AppendCall(client, 7, bytes(SEGMENT_BYTES // 2))] * 3)
    if code is DLedgerResponseCode.NOT_LEADER:
        with pytest.raises(StoreError, match="Input/output error"):
            await asyncio.wait_for(server.fatal, 10)
    else:
        while not client.answers:  # noqa: ASYNC110 - a thread finds it out
            await asyncio.sleep(0.001)
        assert not server.fatal.done()
    monkeypatch.undo()
    await server.close()

    assert [answer.code for answer in client.answers] == [code] * 3
    assert code in codes.NOT_APPENDED, "the entry was certainly not stored"


async def test_a_member_that_must_stop_accepts_and_promises_nothing(tmp_path: Path) -> None:
    terms: list[int] = []

    def save(hard_state: HardState) -> None:
        terms.append(hard_state.term)
        if hard_state.term > 1:
            raise StoreError("the term could not be saved: Input/output error")

    server, core = make_server(tmp_path, save)
    await elect(server, core)
    for term in (7, 8):
        server.clients.peers.receive(
            HeartBeatRequest(sender="n1", receiver="n0", term=term, committed_index=-1, round=1)
        )
        await saved(server)
        assert server.fatal.done()

    assert (terms, core.term) == ([1, 7], 7)
    with pytest.raises(StoreError, match="could not be saved"):
        await server.fatal
    await server.close()
