"""The way of a flush into its thread and back."""

import asyncio
import threading

import pytest

from dledger_node.errors import StoreError
from dledger_node.flush_thread import FlushThread
from dledger_node.store.flush_target import FlushTarget


def target(end_index: int) -> FlushTarget:
    return FlushTarget(end_index=end_index, end_term=1, end_pos=0, generation=0, files=())


async def test_each_target_is_flushed_in_the_thread_and_told_on_the_loop() -> None:
    flushed: list[tuple[int, int]] = []
    told: asyncio.Queue[tuple[int, BaseException | None, int]] = asyncio.Queue()
    thread = FlushThread(
        lambda target: flushed.append((target.end_index, threading.get_ident())),
        lambda target, error: told.put_nowait((target.end_index, error, threading.get_ident())),
    )
    here = threading.get_ident()

    for index in range(3):
        thread.begin(target(index))
        assert await asyncio.wait_for(told.get(), 20) == (index, None, here)
    thread.close()

    assert [index for index, _ in flushed] == [0, 1, 2]
    assert here not in {where for _, where in flushed}
    assert len({where for _, where in flushed}) == 1


async def test_what_a_flush_raises_is_told_and_the_thread_goes_on() -> None:
    told: asyncio.Queue[BaseException | None] = asyncio.Queue()
    broken = StoreError("the disk is gone")

    def flush(target: FlushTarget) -> None:
        if target.end_index == 0:
            raise broken

    thread = FlushThread(flush, lambda _, error: told.put_nowait(error))
    thread.begin(target(0))
    assert await asyncio.wait_for(told.get(), 20) is broken
    thread.begin(target(1))

    assert await asyncio.wait_for(told.get(), 20) is None
    thread.close()


def test_a_loop_that_is_closed_meanwhile_hears_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    entered, goes_on, told = threading.Event(), threading.Event(), []

    def flush(_: FlushTarget) -> None:
        entered.set()
        goes_on.wait()

    async def begin() -> FlushThread:
        thread = FlushThread(flush, lambda *_: told.append(True))
        thread.begin(target(0))
        return thread

    thread = asyncio.run(begin())
    assert entered.wait(20)
    goes_on.set()
    thread.close()

    assert (told, len(recwarn)) == ([], 0)
