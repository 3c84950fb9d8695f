"""Which situations a campaign has met: a count for each cell of a table.

A cell is a kind of message, the receiver's role, the message's term against the receiver's, the
place in the log that the message speaks of against the receiver's log, and what was said to it.
"""

from collections import Counter
from typing import NamedTuple

from dledger_node.raft.core import Raft
from dledger_node.raft.messages import Message
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.kinds import kind_of


class Cell(NamedTuple):
    """One situation; all of it is words."""

    message: str
    role: str
    term: str
    """The message's term is older, same or newer."""
    log: str
    """The receiver's log is: behind the place, equal (ends there), ahead (holds it and more),
    conflicting (has another entry there); - when the message speaks of no place.
    """
    answer: str
    """The first thing sent back to the sender; nothing, when nothing was."""


class Coverage:
    """Counts cells: `before` a message is taken, `sent` for each answer, `after` it."""

    def __init__(self) -> None:
        self.counts: Counter[Cell] = Counter()
        self._sender: str | None = None
        self._answer = "nothing"
        self._seen = ("", "", "", "")

    def before(self, raft: Raft, disk: SimDisk, message: Message) -> None:
        """Note the situation that a message finds."""
        term = "same"
        if message.term != raft.term:
            term = "older" if message.term < raft.term else "newer"
        log = _log_relation(disk, message)
        self._seen = (type(message).__name__, raft.role.value, term, log)
        self._sender = message.sender
        self._answer = "nothing"

    def sent(self, message: Message) -> None:
        """Note what the receiver says meanwhile."""
        if message.receiver == self._sender and self._answer == "nothing":
            result = getattr(message, "result", None)
            self._answer = type(message).__name__ + (f" {result.value}" if result else "")

    def after(self) -> None:
        """Count it."""
        self.counts[Cell(*self._seen, self._answer)] += 1
        self._sender = None

    def told(self) -> str:
        """The table, one line a cell."""
        header = f"{'count':>10}  {'message':22} {'role':10} {'term':6} {'log':12} answer"
        return "\n".join([
            header,
            *(f"{count:>10}  {cell.message:22} {cell.role:10} {cell.term:6} {cell.log:12} "
              f"{cell.answer}" for cell, count in sorted(self.counts.items())),
        ])  # fmt: skip


def _log_relation(disk: SimDisk, message: Message) -> str:
    place_of = kind_of(message).place
    if place_of is None:
        return "-"
    index, term = place_of(message)
    end_index = len(disk.cached) - 1
    if index > end_index:
        return "behind"
    if index >= 0 and disk.cached[index].term != term:
        return "conflicting"
    return "equal" if index == end_index else "ahead"
