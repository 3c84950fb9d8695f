"""Requests whose answers become due at the same time, answered over several turns of the loop.

Thousands of requests may wait for one entry, or have one deadline. Answering all of them in one
turn would hold up heartbeats and all other clients.
"""

from collections import deque
from collections.abc import Iterable

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.services.waiting import Answer, Waiter
from dledger_node.slices import Slices


class DueAnswers:
    """The requests of one service whose outcome is decided, each answered exactly once."""

    def __init__(self) -> None:
        self._due: deque[tuple[Answer, DLedgerResponseCode]] = deque()
        self._answering = Slices(self._answer)

    @property
    def count(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._due)

    def answer(self, waiters: Iterable[Waiter[Answer]], code: DLedgerResponseCode) -> None:
        """Answer all requests of these waiters with one code, the first ones now."""
        self._due += ((reply, code) for waiter in waiters for reply in waiter.replies)
        self.begin()

    def add(self, reply: Answer, code: DLedgerResponseCode) -> None:
        """Answer one request with a code, once `begin` is called."""
        self._due.append((reply, code))

    def begin(self) -> None:
        """Answer the first requests now, if any are due."""
        if self._due:
            self._answering.begin()

    def give_up(self, code: DLedgerResponseCode) -> None:
        """Answer every request that is left with another code, because this member stops."""
        while self._due:
            self._due.popleft()[0](code)

    def _answer(self, count: int) -> bool:
        for _ in range(min(count, len(self._due))):
            reply, code = self._due.popleft()
            reply(code)
        return bool(self._due)
