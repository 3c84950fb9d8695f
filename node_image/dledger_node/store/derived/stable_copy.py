"""A copy of the table of producers at its stable index, made while the table goes on. No IO.

A full table takes milliseconds to copy, and thousands of unstable entries take as long to undo. So
the copy is made in parts: of each producer, what is unstable or has come since is undone in the
copy alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dledger_node.store.derived.producer import (
    Producer,
    Undo,
    copy_of,
    note_appends,
    undo_appends,
)

PART: Final = 64
"""Producers that are copied, or entries that are undone, in one part: about half a millisecond."""


class StableCopy:
    """Copies producers as they were when the copy began, without the unstable entries."""

    def __init__(
        self,
        by_number: Mapping[int, Producer],
        undo: Iterable[Undo],
        stable_index: int,
        window: int,
    ) -> None:
        self.is_void = False
        """Whether the table was changed in a way that the copy cannot follow."""
        self.producers: list[Producer] = []
        """The copies so far."""
        self._window = window
        self._stable_index = stable_index
        self._undo = defaultdict[int, list[Undo]](list)
        stable, unstable = dict(by_number), list(undo)
        for one in reversed(unstable):
            if one.noted is None:
                del stable[one.producer.number]
                if one.replaced is not None:
                    stable[one.producer.number] = one.replaced
        self._left = list(stable.values())
        for one in unstable:
            self.note(one)

    def note(self, undo: Undo) -> None:
        """Note a change of the table; a registration changes no producer that is copied."""
        if undo.noted is not None and self._left:
            self._undo[undo.producer.identity].append(undo)

    def parts(self) -> Iterator[None]:
        """Copy part after part; the table may change between them, unless the copy gets void.

        Only one iterator may be used, to its end or until the copy is given up.
        """
        work = 0
        try:
            while self._left:
                producer = self._left.pop()
                copy = copy_of(producer)
                self.producers.append(copy)
                undos = self._undo.pop(producer.identity, [])
                while undos:
                    self._undo_in(copy, undos.pop())
                    work += 1
                    if work % PART == 0:
                        yield
                work += 1
                if work % PART == 0:
                    yield
        finally:
            self._left.clear()
            self._undo.clear()

    def _undo_in(self, copy: Producer, undo: Undo) -> None:
        undo_appends(copy, undo, self._window)
        if undo.run.first_index <= self._stable_index:
            stable, _ = undo.run.split_at(self._stable_index + 1)
            note_appends(copy, stable, undo.sequence, self._window)
