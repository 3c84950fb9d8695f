"""A blocking call in a thread that the process does not wait for when it ends.

Only for work that a crash may cut off at any point, such as reading a log: `asyncio.to_thread`
keeps a process that was asked to stop alive until the call returns.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def call_in_daemon(name: str, call: Callable[[], ResultT]) -> ResultT:
    """Return the result of a call in a daemon thread of this name, or raise its error.

    A cancelled caller leaves the call running.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: ResultT | None, error: BaseException | None) -> None:
        if done.done():
            return  # the caller was cancelled
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
