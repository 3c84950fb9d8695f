"""What the program does, and how far it is, on standard error.

On a terminal this is one line, which is overwritten, and erased at the end. Elsewhere it is a line
after half a minute, and further ones at growing distances, because the log of a Job is kept.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias

from dledger_formats.status_line import LINE

Share: TypeAlias = Callable[[], float | None]
"""Returns which share of the work is done, from 0 to 1; None if that is not known."""
THREAD_NAME: Final = "dledger-progress"
DELAY_S: Final = 1.0
"""How long the work takes before a terminal shows it."""
EVERY_S: Final = 0.5
LINE_S: Final = 30.0
"""How long the work takes before its first line, where there is no terminal."""
LINE_PAUSE_S_MAX: Final = 600.0
END_S_MAX: Final = 5.0


@contextmanager
def doing(what: str, share: Share = lambda: None) -> Iterator[None]:
    """Show what is done in the block. Another thread calls `share`, which must not raise."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_show, args=(what, share, ended), name=THREAD_NAME, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(END_S_MAX)
        LINE.erase()


def starting_spark() -> AbstractContextManager[None]:
    """Show that Spark starts."""
    return doing("starting Spark")


class Counted:
    """A number of entries, of which the block of `doing` counts those that are done."""

    def __init__(self, total: int) -> None:
        self._total = total
        self.done = 0

    def share(self) -> float | None:
        """Return the share that is done."""
        return max(0.0, min(1.0, self.done / self._total)) if self._total > 0 else None


def text_of(what: str, took_s: float, share: float | None) -> str:
    """Return the text for work that has taken so long."""
    if share is None:
        return f"{what}, {_time(took_s)}"
    if share == 0:
        return f"{what}: 0%, {_time(took_s)} so far"
    return f"{what}: {int(share * 100)}%, {_time(took_s * (1 - share) / share)} left"


def _time(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def _show(what: str, share: Share, ended: threading.Event) -> None:
    """Show the work until it has ended."""
    began_s, next_s = time.monotonic(), LINE_S
    while not ended.wait(EVERY_S):
        is_on_terminal, took_s = LINE.can_be_shown, time.monotonic() - began_s
        if took_s < (DELAY_S if is_on_terminal else next_s):
            continue
        text = text_of(what, took_s, share())
        if ended.is_set():
            return
        if is_on_terminal:
            LINE.show(f"dledger-audit: {text}", text)
        else:
            next_s = took_s + min(took_s, LINE_PAUSE_S_MAX)
            sys.stderr.write(f"dledger-audit: {text}\n")
