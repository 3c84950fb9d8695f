"""A leader that cannot prove in time that it leads says so, and the request may be sent again."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_formats.protocol.follow import FollowRequest
from dledger_formats.protocol.read_range import ReadRangeRequest
from dledger_node.errors import StoreError
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import HeartBeatRequest, HeartBeatResponse
from dledger_node.remoting.read_turns import READS_WAITING_MAX
from dledger_node.services.read_proofs import PROOFS_MAX
from dledger_node.services.waiting import ANSWER_WAIT_S
from dledger_node.shell.server import DLedgerServer
from dledger_node.shell.writes import StoreWriter
from dledger_node.slices import PER_TURN
from dledger_wire.listener import until
from dledger_wire.played import become_master, confirmed, elect, make_server


class Proofs:
    """Asks for proofs and keeps the answers."""

    def __init__(self, server: DLedgerServer, core: Raft) -> None:
        self.server = server
        self.core = core
        self.codes: list[Code] = []

    def ask(self) -> None:
        self.server.clients.proofs.prove(self.codes.append)

    def expire(self) -> None:
        self.server.clients.expire(asyncio.get_running_loop().time() + ANSWER_WAIT_S)

    def answer_heartbeats(self) -> None:
        for round_ in range(1, 4):
            self.server.clients.peers.receive(
                HeartBeatResponse(sender="n1", receiver="n0", term=1, round=round_, joining=False)
            )


@pytest.fixture
async def elected(tmp_path: Path) -> AsyncIterator[Proofs]:
    """A leader whose first entry is not committed."""
    server, core = make_server(tmp_path)
    await elect(server, core)
    yield Proofs(server, core)
    await server.close()


@pytest.mark.parametrize("leads", [False, True], ids=["nobody-answers", "the-entry-is-not-stored"])
async def test_a_proof_that_takes_too_long_is_refused_and_may_be_asked_for_again(
    elected: Proofs, leads: bool
) -> None:
    elected.ask()
    if leads:
        elected.answer_heartbeats()
    assert elected.codes == []

    elected.expire()
    assert elected.codes == [Code.LEADER_NOT_READY]

    for peer_id in ("n1", "n2"):
        elected.server.clients.peers.receive(confirmed(peer_id, -1, probe=1))
        elected.server.clients.peers.receive(confirmed(peer_id, 0))
    elected.answer_heartbeats()
    assert elected.core.master
    assert elected.codes == [Code.LEADER_NOT_READY], "it is answered once"


async def test_proofs_that_have_timed_out_count_until_the_core_releases_them(
    elected: Proofs,
) -> None:
    for _ in range(PROOFS_MAX):
        elected.ask()
    elected.expire()
    await until(lambda: len(elected.codes) == PROOFS_MAX)
    assert elected.codes == [Code.LEADER_NOT_READY] * PROOFS_MAX
    elected.codes.clear()
    elected.ask()
    assert elected.codes == [Code.LEADER_PENDING_FULL], "the core holds them still"

    elected.codes.clear()
    elected.answer_heartbeats()
    elected.ask()
    assert elected.codes == []


async def test_proofs_that_one_answer_gives_are_told_over_many_turns(tmp_path: Path) -> None:
    """10,000 took one turn of 50 ms."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    proofs = Proofs(server, core)
    for _ in range(3 * PER_TURN):
        proofs.ask()
    counts = [0]
    proofs.answer_heartbeats()
    while len(proofs.codes) < 3 * PER_TURN:
        counts.append(len(proofs.codes))
        await asyncio.sleep(0)
    counts.append(len(proofs.codes))

    # The first request has a round of heartbeats for itself.
    assert max(after - before for before, after in itertools.pairwise(counts)) == PER_TURN + 1
    assert set(proofs.codes) == {Code.SUCCESS}
    await server.close()


async def test_proofs_that_are_not_told_yet_are_refused_when_the_member_stops(
    tmp_path: Path,
) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    proofs = Proofs(server, core)
    for _ in range(3 * PER_TURN):
        proofs.ask()
    proofs.answer_heartbeats()

    server.clients.give_up()

    told = PER_TURN + 1
    assert Counter(proofs.codes) == {Code.SUCCESS: told, Code.NOT_LEADER: 3 * PER_TURN - told}
    await server.close()


@pytest.mark.parametrize("kind", ["get", "follow", "range"])
async def test_a_connection_waits_for_as_few_proofs_as_reads(tmp_path: Path, kind: str) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    clients, reader = server.clients, _Reader()
    for opaque in range(READS_WAITING_MAX):
        assert reader.reads_waiting == opaque
        if kind == "get":
            get = requests.GetEntriesRequest(group="g", remote_id="n0", begin_index=9)
            clients.get(reader, get, lambda _: None)
        elif kind == "follow":
            follow = FollowRequest(group="g", remote_id="n0", begin_index=-1, max_size=0, wait_ms=0)
            clients.follows.follow(reader, opaque, follow)
        else:
            range_ = ReadRangeRequest(group="g", remote_id="n0", begin_index=9, max_size=1)
            clients.ranges.read(reader, opaque, range_)
    assert reader.reads_waiting == READS_WAITING_MAX

    Proofs(server, core).answer_heartbeats()
    await until(lambda: reader.reads_waiting == 0)
    await server.close()


async def test_a_member_whose_disk_fails_within_a_turn_answers_what_it_could_not_prove(
    elected: Proofs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a turn ends before the services hear that it was not proved."""

    def fail(_: StoreWriter) -> None:
        if elected.server._core_loop.saving is None:
            raise StoreError("the disk is gone")

    elected.ask()
    monkeypatch.setattr(StoreWriter, "begin_flush", fail)
    elected.server.clients.peers.receive(
        HeartBeatRequest(sender="n1", receiver="n0", term=2, committed_index=-1, round=1)
    )
    await until(elected.server.fatal.done)
    assert isinstance(elected.server.fatal.exception(), StoreError)
    assert elected.codes == []

    elected.server.clients.give_up()
    elected.server.clients.give_up()

    assert elected.codes == [Code.NOT_LEADER]


async def test_a_read_behind_the_end_of_the_log_is_answered_in_time(tmp_path: Path) -> None:
    server, core = make_server(tmp_path)
    await become_master(server, core)
    proofs = Proofs(server, core)
    answers: list[requests.GetEntriesResponse] = []
    request = requests.GetEntriesRequest(group="g", remote_id="n0", begin_index=1)

    server.clients.get(_Reader(), request, answers.append)
    await asyncio.sleep(0)
    assert not answers
    proofs.expire()
    await asyncio.sleep(0)

    assert [answer.code for answer in answers] == [Code.LEADER_NOT_READY]
    await server.close()


class _Reader:
    """A connection that asks for nothing else."""

    unread_since_s: float | None = None
    reads_waiting = 0

    def go_on(self) -> None:
        """Do nothing: no request was put off."""

    def send(self, data: bytes) -> None:
        """Drop the answer."""
