"""Reads that wait for the next entry: few are answered at once, many less often."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_group.alone import member_alone
from dledger_node.remoting.service import AppendCall
from dledger_node.services.answer_pace import (
    ANSWER_S,
    AT_ONCE_S,
    GROUP_S,
    GROUPS_MAX,
    PAUSE_S_MAX,
    AnswerPace,
)
from dledger_node.services.held_reads import (
    ENOUGH_ENTRIES,
    WAITING_MAX,
    HeldReads,
    WaitingRead,
)
from dledger_node.shell.server import DLedgerServer
from dledger_wire.played import Client, become_master, confirmed, make_server

FEW = round(AT_ONCE_S / ANSWER_S)
GROUP = round(GROUP_S / ANSWER_S)


class Waits:
    """The waiting reads of a leader whose peers a test plays, on a clock that a test moves."""

    def __init__(self, server: DLedgerServer) -> None:
        self.server, self.core = server, server._core
        self.now_s = 100.0
        self.answered: list[int] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.waits = HeldReads(self.core, now_s=lambda: self.now_s, call_later=self.call_later)
        server._core_loop.listen([self.waits])

    def call_later(self, delay_s: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        """Keep a timer until `pass_time`."""
        self.timers.append((self.now_s + delay_s, work))
        loop = asyncio.get_running_loop()
        return asyncio.TimerHandle(loop.time() + delay_s, work, (), loop)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and run the timers that are due by then."""
        self.now_s += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for _, work in due:
            work()

    def read(self, index: int, count: int = 1, *, stale: bool = False) -> None:
        """Let reads wait for an entry."""
        for _ in range(count):
            read = WaitingRead(lambda: self.answered.append(index), lambda: None)
            self.waits.wait(index, 20_000, read, stale=stale)

    async def commit(self) -> int:
        """Append an entry that the followers confirm; return its index."""
        self.server.clients.appends.append([AppendCall(Client(), 7, b"mine")])
        await asyncio.sleep(0)
        index = self.core.ledger_end_index
        for peer_id in ("n1", "n2"):
            self.server.clients.peers.receive(confirmed(peer_id, index))
        assert self.core.committed_index == index
        return index


@pytest.fixture
async def waits(tmp_path: Path) -> AsyncIterator[Waits]:
    """Waiting reads of a leader whose entry 0 is committed."""
    server, core = make_server(tmp_path)
    await become_master(server, core)
    yield Waits(server)
    await server.close()


async def test_few_reads_are_answered_at_each_commit(waits: Waits) -> None:
    for index in range(1, 30):
        waits.pass_time(0.001)
        waits.read(index, 4)
        assert await waits.commit() == index
        assert waits.answered.count(index) == 4

    assert not waits.timers


@pytest.mark.parametrize("stale", [False, True])
async def test_many_reads_are_answered_in_small_groups(waits: Waits, stale: bool) -> None:
    waits.read(1, 5 * FEW, stale=stale)
    await waits.commit()
    assert len(waits.answered) == FEW, "the first ones are answered at once"

    await waits.commit()
    assert len(waits.answered) == FEW, "another commit does not hurry the next ones"
    groups: list[int] = []
    while len(waits.answered) < 5 * FEW:
        before = len(waits.answered)
        waits.pass_time(GROUP_S + 0.000_1)
        groups.append(len(waits.answered) - before)
    assert all(GROUP <= group <= GROUP + 1 for group in groups[:-1]), (
        "a timer answers them, without a commit"
    )


async def test_all_reads_that_may_wait_are_answered_in_time(waits: Waits) -> None:
    waits.read(1, WAITING_MAX)
    waits.read(1, WAITING_MAX, stale=True)
    await waits.commit()
    groups: list[int] = []
    while waits.now_s < 100 + PAUSE_S_MAX:
        before = len(waits.answered)
        waits.pass_time(0.001)
        groups.append(len(waits.answered) - before)

    assert len(waits.answered) == 2 * WAITING_MAX
    assert max(groups) <= 2 * (2 * WAITING_MAX // GROUPS_MAX)


async def test_reads_are_answered_in_the_order_in_which_they_are_due(waits: Waits) -> None:
    waits.read(1, FEW + 1)
    await waits.commit()
    waits.read(2)
    await waits.commit()
    for _ in range(3):
        waits.read(1)
    for _ in range(10):
        waits.pass_time(0.001)

    assert waits.answered == [1] * (FEW + 1) + [2, 1, 1, 1]


async def test_of_too_many_reads_that_are_due_the_oldest_is_answered(waits: Waits) -> None:
    index = await waits.commit()
    waits.read(index, 2 * WAITING_MAX)
    assert not waits.answered
    waits.read(index, 3)

    assert len(waits.answered) == 3


async def test_a_read_that_finds_an_entry_waits_as_the_others_do(waits: Waits) -> None:
    index = await waits.commit()
    assert all(waits.waits.admits(1) for _ in range(FEW))
    assert not waits.waits.admits(1)
    waits.read(index)
    assert not waits.answered
    waits.pass_time(0.001)
    assert waits.answered == [index]


async def test_a_read_that_is_far_behind_is_answered_at_once(waits: Waits) -> None:
    waits.read(1, 5 * FEW)
    await waits.commit()

    assert not waits.waits.admits(ENOUGH_ENTRIES - 1)
    assert waits.waits.admits(ENOUGH_ENTRIES)


async def test_reads_that_are_far_behind_delay_no_read_that_waits(waits: Waits) -> None:
    waits.read(1, 5 * FEW)
    await waits.commit()
    waits.read(2)
    await waits.commit()

    for _ in range(300):
        waits.pass_time(ANSWER_S / 2)
        assert waits.waits.admits(ENOUGH_ENTRIES)

    assert waits.answered.count(2) == 1


async def test_reads_that_wait_for_their_turn_end_with_the_member(waits: Waits) -> None:
    refused: list[int] = []
    index = await waits.commit()
    read = WaitingRead(lambda: waits.answered.append(index), lambda: refused.append(index))
    waits.waits.wait(index, 20_000, read)
    waits.waits.give_up()
    waits.pass_time(1)

    assert (waits.answered, refused) == ([], [index])


def test_groups_become_smaller_only_after_the_longest_pause() -> None:
    pace = AnswerPace()
    pace.adapt(100 * GROUPS_MAX, 7.0)
    pace.use(200, 7.0)
    pace.adapt(1, 7.0 + PAUSE_S_MAX / 2)
    assert pace.room(1000, 7.0 + PAUSE_S_MAX / 2) == 200
    pace.adapt(1, 7.0 + PAUSE_S_MAX)

    assert pace.room(1000, 7.0 + PAUSE_S_MAX) == FEW


async def test_all_of_many_tails_get_every_entry_in_order(tmp_path: Path) -> None:
    tails, entries = 30, 300
    async with member_alone(tmp_path) as address, DLedgerClient([address], "g") as writer:

        async def tail() -> list[bytes]:
            bodies = []
            async with DLedgerClient([address], "g") as client:
                async for entry in client.tail(1):
                    bodies.append(entry.body)
                    if len(bodies) == entries:
                        break
            return bodies

        reading = [asyncio.create_task(tail()) for _ in range(tails)]
        for number in range(entries):
            await writer.append(b"%d" % number)
        async with asyncio.timeout(60):
            found = await asyncio.gather(*reading)

    assert found == [[b"%d" % number for number in range(entries)]] * tails
