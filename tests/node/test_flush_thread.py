"""The way of a flush into its thread and back."""

import asyncio
import os
import threading

from dledger_node.errors import StoreError
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.volume.flush_thread import FlushThread


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


async def test_nothing_of_it_is_left_when_it_is_closed() -> None:
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    told = asyncio.Event()
    thread = FlushThread(lambda _: None, lambda *_: told.set())
    thread.begin(target(0))
    await asyncio.wait_for(told.wait(), 20)

    thread.close()

    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)
