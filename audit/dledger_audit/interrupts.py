"""Ctrl-C (SIGINT) while Spark runs: it raises KeyboardInterrupt, and Spark logs nothing.

PySpark's own handler asks the JVM to cancel its jobs in the middle of another call. Both sides log
tracebacks then.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Handles SIGINT in the main thread, unless the process ignores it."""

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        self._is_main = threading.current_thread() is threading.main_thread()
        self._held: list[int] | None = None
        self._gateways: list[Any] = []

    def shield(self, gateway: Any) -> None:
        """Let the connections of other threads to this gateway's JVM be when one is interrupted.

        If KeyboardInterrupt ends a request, py4j asks the JVM to cut its connection, by a message
        on every idle connection: it compares the JVM's port, which is the same for all. The JVM
        then also cuts connections that were opened since, such as that of the next request.
        """
        self._gateways.append(gateway)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGINT in the block, and restore what handled it before."""
        self.install()
        try:
            yield
        finally:
            if self._is_main:
                signal.signal(signal.SIGINT, self._before)

    def install(self) -> None:
        """Become the handler again; a new SparkContext installs another one."""
        if self._is_main:
            ignored = self._before is signal.SIG_IGN
            signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else self._interrupt)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold SIGINT back until the end of the block.

        If `launch_gateway` is interrupted, it removes the folder that the JVM is to write to, and
        the JVM runs forever. Otherwise, the JVM ends with this process.
        """
        held: list[int] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
        if held:
            self._interrupt(signal.SIGINT, None)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._held is not None:
            self._held.append(number)
            return
        logging.disable()  # py4j logs the interrupt with a traceback
        for gateway in self._gateways:
            gateway._gateway_client.deque.clear()  # closes the idle ones; their threads open others
        raise KeyboardInterrupt
