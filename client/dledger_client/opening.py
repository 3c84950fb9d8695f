"""Opening files without blocking the event loop: a named pipe waits for its other end."""

import asyncio
import os
import threading
from typing import Final

THREAD_NAME: Final = "dledger-open"


async def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file and return its descriptor. Raises OSError; ValueError for a NUL in the path.

    A daemon thread opens it, so that a cancellation ends the wait. The thread then ends with the
    process, or closes a file that it opened too late.
    """
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[int] = loop.create_future()

    def take(file: int | Exception) -> None:
        if isinstance(file, Exception):
            if not opened.done():
                opened.set_exception(file)
        elif opened.done():
            os.close(file)
        else:
            opened.set_result(file)

    def work() -> None:
        file: int | Exception
        try:
            file = os.open(path, flags)
        except (OSError, ValueError) as error:
            file = error
        try:
            loop.call_soon_threadsafe(take, file)
        except RuntimeError:  # the loop has ended
            if isinstance(file, int):
                os.close(file)

    threading.Thread(target=work, name=THREAD_NAME, daemon=True).start()
    return await opened
