"""Requests that need a state with everything that was acknowledged before they came.

A member that lags, and a leader that was deposed and has not noticed, lack messages that another
one has acknowledged. So neither may say where a queue ends. A leader first proves that it led after
the request had come, and any other member asks its leader for that proof; then it applies what was
committed until then. Requests that come meanwhile share the next proof.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from dledger_broker.door.calls.call import Call

APPLY_S_MAX: Final = 2.0
"""How long a request waits until what its proof covers is applied."""


class Prover(Protocol):
    """The member, as far as it is asked here."""

    def prove(self, done: Callable[[bool], object]) -> None:
        """Call `done` once: whether this member has committed all entries that were acknowledged
        before this call.
        """

    @property
    def readable_index(self) -> int:
        """Index up to which this member knows that every entry is committed."""

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied."""


class _Asked(NamedTuple):
    call: Call
    decided: Callable[[bool], None]


class Proofs:
    """The requests that wait for a proof, or until what it covers is applied."""

    def __init__(self, member: Prover) -> None:
        self._member = member
        self._loop = asyncio.get_running_loop()
        self._new: list[_Asked] = []
        self._is_asking = False
        self._unapplied: deque[tuple[int, float, list[_Asked]]] = deque()
        """Requests with a proof, the index up to which entries must be applied, and until when they
        wait for that; lowest first.
        """

    def ask(self, call: Call, decided: Callable[[bool], None]) -> None:
        """Call `decided` once; True means that the state has everything that was acknowledged
        before the request came.
        """
        call.line.reads_waiting += 1
        self._new.append(_Asked(call, decided))
        self._ask_soon()

    def go_on(self) -> None:
        """End the waits of those whose entries are applied now."""
        while self._unapplied and self._unapplied[0][0] <= self._member.applied_index:
            self._end(self._unapplied.popleft()[2], proved=True)

    def expire(self) -> None:
        """End the waits that have lasted for too long."""
        while self._unapplied and self._unapplied[0][1] <= self._loop.time():
            self._end(self._unapplied.popleft()[2], proved=False)

    def _ask_soon(self) -> None:
        """Ask at the end of this turn of the event loop, unless a proof is under way."""
        if self._new and not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        asked, self._new = self._new, []
        # The member answers in the middle of a turn of its own.
        self._member.prove(lambda proved: self._loop.call_soon(self._answered, asked, proved))

    def _answered(self, asked: list[_Asked], proved: bool) -> None:
        self._is_asking = False
        if proved:
            due_s = self._loop.time() + APPLY_S_MAX
            self._unapplied.append((self._member.readable_index, due_s, asked))
            self.go_on()
        else:
            self._end(asked, proved=False)
        self._ask_soon()

    def _end(self, asked: list[_Asked], *, proved: bool) -> None:
        for call, decided in asked:
            call.line.reads_waiting -= 1
            decided(proved)
            call.line.go_on()
