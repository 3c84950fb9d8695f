"""Requests that need a state with everything that was acknowledged before they came.

A member that lags, and a leader that was deposed and has not noticed, lack messages that another
one has acknowledged. So neither may say where a queue ends. A leader first proves that it led after
the request had come, and any other member asks its leader for that proof; then it applies what was
committed until then. Requests that come meanwhile share the next proof.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from dledger_broker.door.calls.call import Call


class Prover(Protocol):
    """The member, as far as it is used here."""

    def prove(self, done: Callable[[bool], object]) -> None:
        """Call `done` once with whether this member has committed all entries that were
        acknowledged before this call.
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
    until_s: float


class Proofs:
    """The requests that wait for a proof, or until what it covers is applied."""

    def __init__(self, member: Prover, hurry: Callable[[], None] = lambda: None) -> None:
        """`hurry` is called when a request begins to wait, so that `expire` comes in time."""
        self._member = member
        self._hurry = hurry
        self._loop = asyncio.get_running_loop()
        self._new: list[_Asked] = []
        self._is_asking = False
        self._asking: list[_Asked] = []
        """The requests whose proof is under way."""
        self._unapplied: deque[tuple[int, list[_Asked]]] = deque()
        """Requests with a proof, and the index up to which entries must be applied; lowest
        first.
        """

    def ask(self, call: Call, decided: Callable[[bool], None], until_s: float) -> None:
        """Call `decided` once, at `until_s` at the latest; True means that the state has everything
        that was acknowledged before the request came.
        """
        call.channel.reads_waiting += 1
        self._new.append(_Asked(call, decided, until_s))
        self._hurry()
        self._ask_soon()

    @property
    def is_idle(self) -> bool:
        """Return whether no request waits."""
        return not (self._new or self._asking or self._unapplied)

    def go_on(self) -> None:
        """End the waits of those whose entries are applied now."""
        while self._unapplied and self._unapplied[0][0] <= self._member.applied_index:
            self._end(self._unapplied.popleft()[1], proved=True)

    def expire(self) -> None:
        """End the waits that have lasted for too long, whatever they wait for."""
        now_s = self._loop.time()
        late: list[_Asked] = []
        for asked in (*(asked for _, asked in self._unapplied), self._asking, self._new):
            late += [each for each in asked if each.until_s <= now_s]
            asked[:] = [each for each in asked if each.until_s > now_s]
        self._unapplied = deque(each for each in self._unapplied if each[1])
        self._end(late, proved=False)

    def _ask_soon(self) -> None:
        """Ask at the end of this turn of the event loop, unless a proof is under way."""
        if self._new and not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        asked, self._new = self._new, []
        self._asking = asked
        # The member answers in the middle of a turn of its own.
        self._member.prove(lambda proved: self._loop.call_soon(self._answered, asked, proved))

    def _answered(self, asked: list[_Asked], proved: bool) -> None:
        self._is_asking, self._asking = False, []
        if proved:
            self._unapplied.append((self._member.readable_index, asked))
            self.go_on()
        else:
            self._end(asked, proved=False)
        self._ask_soon()

    def _end(self, asked: list[_Asked], *, proved: bool) -> None:
        with ExitStack() as stack:  # ends the others even after one fails
            for call, decided, _ in reversed(asked):
                stack.callback(call.channel.go_on)
                stack.callback(decided, proved)
                call.channel.reads_waiting -= 1
