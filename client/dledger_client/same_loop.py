"""Where an open client may be used: in the event loop, and in the process, that has opened it.

A forked process has copies of the sockets, and of what waits on them, but no other thread.
"""

import asyncio
import os
from typing import Final

ELSEWHERE: Final = (
    "this DLedgerClient was opened in another event loop, perhaps of another thread, or of the "
    "process that this one was forked from: open a client here"
)
FORKED: Final = (
    "this BlockingClient was opened by the process that this one was forked from: open a client in "
    "this process"
)
OUTSIDE: Final = "BlockingClient was used outside its `with` block"


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise RuntimeError unless the caller runs in this event loop."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(ELSEWHERE) from error
    if running is not loop:
        raise RuntimeError(ELSEWHERE)


def is_forked(process_id: int) -> bool:
    """Return whether another process has opened a client; 0 stands for one that was not opened."""
    return process_id not in (0, os.getpid())


def why_closed(process_id: int) -> str:
    """Return why a client that this process has opened, or another one, takes no calls here."""
    return FORKED if is_forked(process_id) else OUTSIDE
