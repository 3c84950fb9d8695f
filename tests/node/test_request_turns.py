"""HTTP requests take turns, and probes have their share of each."""

import asyncio
from collections.abc import Callable

import pytest

from dledger_node.http.request_turns import PER_TURN, RequestTurns


class Loop:
    """An event loop whose turns the test runs; `handled` are the owners of the last turn's work."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.handled: list[str] = []
        self.turns = RequestTurns(self.due.append)

    def submit(self, owner: str, *, is_probe: bool = False) -> None:
        self.turns.submit(owner, lambda: self.handled.append(owner), is_probe=is_probe)

    def turn(self) -> list[str]:
        self.handled, due = [], self.due[:]
        self.due.clear()
        for run in due:
            run()
        return self.handled


def test_a_turn_begins_a_few_requests_in_the_order_in_which_they_came() -> None:
    loop = Loop()
    owners = [f"c{number}" for number in range(2 * PER_TURN + 1)]
    for owner in owners:
        loop.submit(owner)

    turns = [loop.turn() for _ in range(3)]

    assert turns == [owners[:PER_TURN], owners[PER_TURN : 2 * PER_TURN], owners[-1:]]
    assert not loop.due, "a loop without requests is not kept awake"


def test_neither_probes_nor_others_wait_for_all_of_the_other_kind() -> None:
    loop = Loop()
    for number in range(10 * PER_TURN):
        loop.submit(f"probe{number}", is_probe=True)
        loop.submit(f"other{number}")

    first = loop.turn()

    assert sorted(first) == ["other0", "other1", "probe0", "probe1"]


def test_a_probe_is_among_the_first_of_the_next_turn() -> None:
    loop = Loop()
    for number in range(10 * PER_TURN):
        loop.submit(f"other{number}")
    loop.turn()
    loop.submit("probe", is_probe=True)

    assert loop.turn()[0] == "probe"


def test_the_request_of_a_closed_connection_is_not_handled() -> None:
    loop = Loop()
    loop.submit("closed")
    loop.submit("probe", is_probe=True)
    loop.turns.forget("closed")
    loop.turns.forget("probe")

    assert loop.turn() == []


def test_after_an_error_the_others_are_handled() -> None:
    loop = Loop()
    loop.turns.submit("bad", lambda: 1 // 0)
    loop.submit("good")
    with pytest.raises(ZeroDivisionError):
        loop.turn()

    assert loop.turn() == ["good"]


async def test_who_no_longer_waits_takes_no_place() -> None:
    turns, passed = RequestTurns(), []

    async def wait(number: int) -> None:
        await turns.turn()
        passed.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(3 * PER_TURN)]
    await asyncio.sleep(0)
    for task in tasks[:-1]:
        task.cancel()
    await asyncio.wait_for(tasks[-1], 20)

    assert passed == [3 * PER_TURN - 1]
