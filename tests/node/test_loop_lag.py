"""The time of each turn of the event loop is measured, wherever in the turn the work is."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from dledger_node.histogram import Histogram
from dledger_node.raft.messages import AppendRequest
from dledger_node.shell.loop_lag import LoopLag
from dledger_node.shell.server import DLedgerServer
from dledger_wire.listener import until
from dledger_wire.played import Client, become_master, make_server

LONG_S = 0.03


def work() -> None:
    """Use the processor for LONG_S."""
    end_s = time.thread_time() + LONG_S
    while time.thread_time() < end_s:
        pass


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


def test_work_in_the_turn_that_input_enters_is_measured(runner: asyncio.Runner) -> None:
    async def turn() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        work()
        await until(lambda: lag.turn_cpu_s.max > 0)
        return lag

    with runner:
        assert LONG_S <= runner.run(turn()).turn_cpu_s.max < 2 * LONG_S


def test_work_that_continues_in_a_later_turn_is_measured_by_itself(runner: asyncio.Runner) -> None:
    async def turns() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        work()
        await asyncio.sleep(0)
        work()
        await until(lambda: lag.turn_cpu_s.cumulative()[-1] >= 2)
        return lag

    with runner:
        lag = runner.run(turns())
    assert LONG_S <= lag.turn_cpu_s.max < 2 * LONG_S, "two turns, not one of twice the time"
    assert lag.turn_cpu_s.sum >= 2 * LONG_S


def test_a_loop_that_waits_for_input_is_not_kept_awake(runner: asyncio.Runner) -> None:
    async def idle() -> float:
        LoopLag().begin_turn()
        begun_s = time.thread_time()
        await asyncio.sleep(0.1)
        return time.thread_time() - begun_s

    with runner:
        assert runner.run(idle()) < 0.02


def test_waiting_is_no_processor_time(runner: asyncio.Runner) -> None:
    async def turn() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        time.sleep(LONG_S)  # noqa: ASYNC251 - a turn that blocks
        work()
        await until(lambda: lag.turn_cpu_s.max > 0)
        return lag

    with runner:
        assert runner.run(turn()).turn_cpu_s.max < 2 * LONG_S


def test_a_timer_that_fires_early_has_no_lag() -> None:
    lag = LoopLag()
    lag.timer_fired(-0.001)
    lag.timer_fired(0.3)

    assert (lag.lag_s.max, lag.lag_s.sum) == (0.3, 0.3)


def test_a_value_counts_in_the_bucket_of_its_bound_and_in_all_above() -> None:
    histogram = Histogram((1, 2, 4))
    for value in (1, 1.5, 9):
        histogram.observe(value)

    assert histogram.cumulative() == [1, 2, 2, 3]
    assert (histogram.sum, histogram.max) == (11.5, 9)


# Threads.


class Begun:
    """A leader, and what its parts do when a thread has ended: begin a turn, then their work."""

    def __init__(self, server: DLedgerServer, events: list[str]) -> None:
        self.server = server
        self.events = events

    def work(self, *_: object) -> None:
        self.events.append("work")

    def read_disk(self) -> None:
        self.server.clients.disk_reads.read(Client(), lambda: None, self.work, self.work)

    def fetch_push(self) -> None:
        push = AppendRequest(
            sender="n0", receiver="n1", term=1, previous_index=-1, previous_term=-1,
            first_index=0, last_index=0, entries_term=1, committed_index=0, entries=None,
        )  # fmt: skip
        self.server.clients.peers._owner.fetch(push, 1 << 20, self.work)

    def make_room(self) -> None:
        self.server.clients.go_on = self.work  # type: ignore[method-assign]
        self.server._disk.room._make(lambda: None)


@pytest.mark.parametrize("begin", [Begun.read_disk, Begun.fetch_push, Begun.make_room])
async def test_work_after_a_thread_is_measured_like_other_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Begun], None]
) -> None:
    events: list[str] = []
    monkeypatch.setattr(LoopLag, "begin_turn", lambda _: events.append("turn"))
    server, core = make_server(tmp_path)
    await become_master(server, core)
    await until(lambda: "turn" in events and not server._disk.group_commit.in_flight_s)
    events.clear()

    begin(Begun(server, events))
    await until(lambda: "work" in events)

    assert events == ["turn", "work"]
    await server.close()
