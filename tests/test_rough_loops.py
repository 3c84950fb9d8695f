"""`--rough`: event loops that run as on a busy machine."""

import asyncio
import random
import selectors
import socket

import pytest

from dledger_rough_loops.plugin import RoughSelector

PAIRS = 20


def order_of_arrival(seed: int) -> list[int]:
    """Return the order in which a loop reads sockets that are ready at once."""
    RoughSelector.random = random.Random(seed)
    pairs = [socket.socketpair() for _ in range(PAIRS)]
    arrived: list[int] = []

    async def read_all() -> None:
        loop, all_arrived = asyncio.get_running_loop(), asyncio.Event()

        def read(number: int) -> None:
            loop.remove_reader(pairs[number][0])
            arrived.append(number)
            if len(arrived) == PAIRS:
                all_arrived.set()

        for number, (reader, writer) in enumerate(pairs):
            writer.send(b"x")
            loop.add_reader(reader, read, number)
        await all_arrived.wait()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(RoughSelector())) as runner:
        runner.run(asyncio.wait_for(read_all(), timeout=30))
    for pair in pairs:
        for end in pair:
            end.close()
    return arrived


def test_each_socket_is_reported_in_the_end_and_orders_differ() -> None:
    orders = [order_of_arrival(seed) for seed in range(3)]

    assert all(sorted(order) == list(range(PAIRS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_loops_have_the_selector_that_the_option_asks_for(pytestconfig: pytest.Config) -> None:
    is_rough = pytestconfig.getoption("--rough") is not None

    assert issubclass(selectors.DefaultSelector, RoughSelector) == is_rough
