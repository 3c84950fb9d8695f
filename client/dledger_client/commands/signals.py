"""Signals that end a command cleanly."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any, Final

from dledger_formats import interrupts

EXIT_ON_SIGNAL: Final = 128


@contextlib.contextmanager
def cancelled_by_signals(task: asyncio.Task[Any], signals: list[int]) -> Iterator[None]:
    """Cancel the task on SIGINT and SIGTERM, and add the signal's number to `signals`."""
    loop = asyncio.get_running_loop()

    def cancel(number: int) -> None:
        signals.append(number)
        task.cancel()

    handled = interrupts.not_ignored((signal.SIGINT, signal.SIGTERM))
    for number in handled:
        loop.add_signal_handler(number, cancel, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
