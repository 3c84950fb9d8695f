"""Answers probes while the event loop waits for the disk.

Slow disk operations run in threads. But even a cheap write to the page cache blocks, and the loop
with it, while the file system's journal waits for the disk. The kubelet would then kill the member
because of its disk. That would not help: the process cannot even end before the disk has answered.

So a thread watches the HTTP port. When the loop leaves a connection waiting, is late and waits for
the disk, the deputy accepts the connections: it answers that the process lives, that the member is
not ready, and nothing else. The loop waits for the disk while its thread is in an uninterruptible
sleep, which only IO in the kernel causes, or while it sleeps and another thread is in such a sleep:
an append waits for the lock of a thread that writes zeros ahead of it (`segments.zero_ahead`). If
the loop is late for any other reason, such as a callback that never ends, the deputy does not
answer, and the kubelet kills the member, as it should.

The thread sleeps until a connection arrives, so it does not wake an idle member.
"""

import asyncio
import contextlib
import logging
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

LATE_S: Final = 1.0
"""How late the loop must be: it leaves a connection waiting for half of this time, and does not
answer the deputy for the other half. The limit of a liveness probe is 5 s.
"""
LOOK_S: Final = 1.0
"""Time between two checks of what the loop's thread does, while the deputy answers."""
TURN_S: Final = 0.05
"""How soon the deputy notices that the loop runs again."""
CONNECTIONS_MAX: Final = 64
REQUEST_S: Final = 1.0
"""Maximum time for a connection to send its request. A probe sends it at once."""
HEAD_BYTES_MAX: Final = 4096


class Deputy:
    """Answers probes for the event loop. `_run` and what it calls belong to the deputy's thread."""

    def __init__(self, listeners: Iterable[int]) -> None:
        """`listeners` are the descriptors of the sockets that listen on the HTTP port."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_native_id()
        self._listeners = [socket.socket(fileno=os.dup(fd)) for fd in listeners]
        self._asked_s = 0.0
        self._answered = threading.Event()
        """Set when the loop has answered the deputy, or the deputy is to end."""
        self._closing = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="deputy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, and end the thread."""
        self._closing.set()
        self._answered.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for listener in self._listeners:
            listener.close()

    # -- in the thread ---------------------------------------------------------------------------

    @property
    def _late_s(self) -> float:
        return time.monotonic() - self._asked_s

    def _run(self) -> None:
        with select.epoll() as arrivals:
            arrivals.register(self._wake, select.EPOLLIN)
            for listener in self._listeners:
                # Edges: the loop accepts most connections before this thread looks.
                arrivals.register(listener, select.EPOLLIN | select.EPOLLET)
            while not self._closing.is_set():
                arrivals.poll()
                self._watch_loop()

    def _watch_loop(self) -> None:
        """Watch the loop until it has accepted the connections that have arrived."""
        while not self._closing.wait(LATE_S / 2) and self._somebody_waits():
            if not self._loop_answers(LATE_S / 2) and self._waits_for_the_disk():
                logger.error("the event loop waits for the disk; only probes are answered")
                try:
                    self._stand_in()
                except (OSError, ValueError) as error:
                    logger.warning("probes are not answered: %s", error)
                logger.warning("the event loop runs again")

    def _somebody_waits(self) -> bool:
        waiting = select.poll()
        for listener in self._listeners:
            waiting.register(listener, select.POLLIN)
        return bool(waiting.poll(0))

    def _loop_answers(self, timeout_s: float) -> bool:
        """Ask the loop to answer; return whether it does so in time."""
        self._answered.clear()
        self._asked_s = time.monotonic()
        if self._closing.is_set():
            return True
        self._loop.call_soon_threadsafe(self._answered.set)
        return self._answered.wait(timeout_s)

    def _waits_for_the_disk(self) -> bool:
        return waits_for_the_disk(self._loop_thread, thread_states())

    def _stand_in(self) -> None:
        """Answer until the loop runs again, or no longer waits for the disk.

        Connections that were accepted by then are still answered.
        """
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ, None)
            guests: dict[socket.socket, _Guest] = {}
            looked_s = time.monotonic()
            is_over = False
            while guests or not is_over:
                for key, _ in selector.select(TURN_S):
                    guest = key.data
                    if guest is None:
                        self._accept(key.fileobj, selector, guests, opened)  # type: ignore[arg-type]
                    elif guest.connection not in guests:
                        pass  # it was just dismissed in favor of a new one
                    elif guest.answered(self._late_s):
                        self._dismiss(guest, selector, guests)
                now_s = time.monotonic()
                for guest in [one for one in guests.values() if one.deadline_s <= now_s]:
                    self._dismiss(guest, selector, guests)
                if is_over:
                    continue
                is_over = self._answered.is_set()
                if not is_over and now_s - looked_s >= LOOK_S:
                    looked_s = now_s
                    is_over = not self._waits_for_the_disk()
                if is_over:
                    for listener in self._listeners:
                        selector.unregister(listener)

    def _accept(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        guests: dict[socket.socket, "_Guest"],
        opened: contextlib.ExitStack,
    ) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            opened.callback(connection.close)
            connection.setblocking(False)
            if len(guests) >= CONNECTIONS_MAX:  # the oldest is no probe, which asks at once
                self._dismiss(next(iter(guests.values())), selector, guests)
            guest = guests[connection] = _Guest(connection)
            selector.register(connection, selectors.EVENT_READ, guest)

    def _dismiss(
        self,
        guest: "_Guest",
        selector: selectors.BaseSelector,
        guests: dict[socket.socket, "_Guest"],
    ) -> None:
        selector.unregister(guest.connection)
        del guests[guest.connection]
        guest.connection.close()


def thread_states() -> dict[int, str]:
    """Return the state of each thread of this process, by native id (proc(5): R, S, D, …)."""
    states = {}
    for folder in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            states[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()[0]
    return states


def waits_for_the_disk(loop_thread: int, states: Mapping[int, str]) -> bool:
    """Return whether a late loop waits for the disk, or for a thread that does."""
    state = states.get(loop_thread)
    return state == "D" or (state == "S" and "D" in states.values())


class _Guest:
    """A connection to the deputy, for one request."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline_s = time.monotonic() + REQUEST_S
        self._head = b""

    def answered(self, late_s: float) -> bool:
        """Read what has arrived; answer a complete request. Return whether this guest is done."""
        try:
            data = self.connection.recv(HEAD_BYTES_MAX)
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return not data or len(self._head) > HEAD_BYTES_MAX
            self.connection.send(answer_to(self._head, late_s))
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


def answer_to(head: bytes, late_s: float) -> bytes:
    """Return the response to a request while the loop has waited for the disk for `late_s`."""
    if head.startswith(b"GET /healthz "):
        status, text = "200 OK", "ok\n"
    else:
        status = "503 Service Unavailable"
        text = f"the event loop has waited for the disk for {late_s:.0f} s\n"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
    ).encode()
