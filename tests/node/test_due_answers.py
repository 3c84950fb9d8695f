"""Requests whose outcome is decided at the same time are answered over many turns of the loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_node.raft.core import Raft
from dledger_node.remoting.service import AppendCall, IdempotentCall
from dledger_node.services.due_answers import DueAnswers
from dledger_node.services.waiting import ANSWER_WAIT_S, Answer, Waiter
from dledger_node.shell.server import DLedgerServer
from dledger_node.slices import PER_TURN
from dledger_wire.played import Client, become_master, confirmed, make_server


def waiters(count: int, answer: Answer) -> list[Waiter[Answer]]:
    return [Waiter([answer], 7, 1) for _ in range(count)]


async def counts_until(count: int, answered: Callable[[], int]) -> list[int]:
    """Return how many answers there are after each turn, until there are `count`."""
    counts = [answered()]
    while counts[-1] < count:
        await asyncio.sleep(0)
        counts.append(answered())
    return counts


async def test_a_turn_sends_so_many_answers_and_the_first_at_once() -> None:
    codes: list[Code] = []
    due = DueAnswers()

    due.answer(waiters(2 * PER_TURN + 1, codes.append), Code.SUCCESS)
    due.answer(waiters(1, codes.append), Code.LEADER_NOT_READY)

    counts = await counts_until(2 * PER_TURN + 2, lambda: len(codes))
    assert counts == [PER_TURN, 2 * PER_TURN, 2 * PER_TURN + 2]
    assert codes == [Code.SUCCESS] * (2 * PER_TURN + 1) + [Code.LEADER_NOT_READY]
    assert due.count == 0


async def test_what_is_left_when_the_member_stops_is_answered_at_once() -> None:
    codes: list[Code] = []
    due = DueAnswers()
    due.answer(waiters(3 * PER_TURN, codes.append), Code.SUCCESS)

    due.give_up(Code.NOT_LEADER)
    await asyncio.sleep(0)

    assert Counter(codes) == {Code.SUCCESS: PER_TURN, Code.NOT_LEADER: 2 * PER_TURN}


class Leader:
    """Leader n0 of a played group, with a producer whose entry is not committed."""

    def __init__(self, server: DLedgerServer, core: Raft) -> None:
        self.server, self.core = server, core
        request = RegisterProducerRequest(group="g", remote_id="n0")
        server.clients.register_producer(request, lambda _: None)
        self.producer = core.ledger_end_index
        self.commit()

    def commit(self) -> None:
        for peer_id in ("n1", "n2"):
            self.server.clients.peers.receive(confirmed(peer_id, self.core.ledger_end_index))

    async def append(self, client: Client, count: int) -> None:
        """Send copies of one append."""
        call = IdempotentCall(client, 1, b"once", self.producer, 1)
        self.server.clients.appends.append_idempotent([call] * count)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    yield Leader(server, core)
    await server.close()


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.WAIT_QUORUM_ACK_TIMEOUT])
async def test_copies_of_an_append_are_answered_over_many_turns(leader: Leader, code: Code) -> None:
    """10,000 took one turn of 200 ms when a majority answered again."""
    first, again = Client(), Client()
    await leader.append(first, 1)
    await leader.append(again, 3 * PER_TURN)
    assert again.answers == []

    if code is Code.SUCCESS:
        leader.commit()
    else:
        leader.server.clients.expire(asyncio.get_running_loop().time() + ANSWER_WAIT_S)

    counts = await counts_until(3 * PER_TURN, lambda: len(again.answers))
    assert counts == [PER_TURN, 2 * PER_TURN, 3 * PER_TURN]
    assert {answer.code for answer in again.answers} == {code}


async def test_copies_that_are_not_answered_yet_count_against_the_limit(leader: Leader) -> None:
    again, late = Client(), Client()
    await leader.append(Client(), 1)
    limit = leader.server.clients.appends._waiters.count_max
    for _ in range(limit // PER_TURN):
        await leader.append(again, PER_TURN)
    leader.commit()
    leader.server.clients.idempotent._waiters.count_max = PER_TURN

    assert len(again.answers) == PER_TURN
    assert leader.server.clients.idempotent._is_full
    await counts_until(limit, lambda: len(again.answers))
    await leader.append(late, 1)
    assert [answer.code for answer in late.answers] == [Code.SUCCESS]


async def append_of_many(leader: Leader) -> list[Client]:
    """Send an append on each of many connections."""
    clients = [Client() for _ in range(3 * PER_TURN)]
    leader.server.clients.appends.append([AppendCall(client, 1, b"x") for client in clients])
    for _ in range(3):
        await asyncio.sleep(0)
    return clients


def answers_of(clients: list[Client]) -> list[Code]:
    return [answer.code for client in clients for answer in client.answers]


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.WAIT_QUORUM_ACK_TIMEOUT])
async def test_appends_of_many_connections_are_answered_over_many_turns(
    leader: Leader, code: Code
) -> None:
    """Each connection costs a write, and a leader that is deposed answers all of them."""
    clients = await append_of_many(leader)

    if code is Code.SUCCESS:
        leader.commit()
    else:
        leader.server.clients.expire(asyncio.get_running_loop().time() + ANSWER_WAIT_S)

    counts = await counts_until(3 * PER_TURN, lambda: len(answers_of(clients)))
    assert counts == [PER_TURN, 2 * PER_TURN, 3 * PER_TURN]
    assert set(answers_of(clients)) == {code}


async def test_a_member_that_stops_sends_the_answers_of_many_connections_at_once(
    leader: Leader,
) -> None:
    """Its connections are ended next."""
    clients = await append_of_many(leader)
    leader.commit()
    assert len(answers_of(clients)) == PER_TURN

    leader.server.clients.give_up()

    assert answers_of(clients) == [Code.SUCCESS] * (3 * PER_TURN)
