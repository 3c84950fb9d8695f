"""Work goes to the disk thread, and results come back to the loop."""

import asyncio
import os
import threading

from dledger_node.errors import StoreError
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.volume.disk_thread import DiskThread


def target(end_index: int) -> FlushTarget:
    return FlushTarget(end_index=end_index, end_term=1, end_pos=0, generation=0, files=())


async def test_each_target_is_flushed_in_the_thread_and_reported_on_the_loop() -> None:
    flushed: list[tuple[int, int]] = []
    reported: asyncio.Queue[tuple[int, BaseException | None, int]] = asyncio.Queue()
    thread = DiskThread[FlushTarget](
        "flush",
        lambda target: flushed.append((target.end_index, threading.get_ident())),
        lambda target, error: reported.put_nowait((target.end_index, error, threading.get_ident())),
    )
    here = threading.get_ident()

    for index in range(3):
        thread.begin(target(index))
        assert await asyncio.wait_for(reported.get(), 20) == (index, None, here)
    thread.close()

    assert [index for index, _ in flushed] == [0, 1, 2]
    assert here not in {where for _, where in flushed}
    assert len({where for _, where in flushed}) == 1


async def test_an_error_of_a_flush_is_reported_and_the_thread_continues() -> None:
    reported: asyncio.Queue[BaseException | None] = asyncio.Queue()
    broken = StoreError("the disk is gone")

    def flush(target: FlushTarget) -> None:
        if target.end_index == 0:
            raise broken

    thread = DiskThread("flush", flush, lambda _, error: reported.put_nowait(error))
    thread.begin(target(0))
    assert await asyncio.wait_for(reported.get(), 20) is broken
    thread.begin(target(1))

    assert await asyncio.wait_for(reported.get(), 20) is None
    thread.close()


async def test_close_leaves_no_thread_and_no_open_file() -> None:
    threads, files = {*threading.enumerate()}, {*os.listdir("/proc/self/fd")}
    reported = asyncio.Event()
    thread = DiskThread[FlushTarget]("flush", lambda _: None, lambda *_: reported.set())
    thread.begin(target(0))
    await asyncio.wait_for(reported.wait(), 20)

    thread.close()

    assert not {*threading.enumerate()} - threads, "what others have left may end meanwhile"
    assert not {*os.listdir("/proc/self/fd")} - files
