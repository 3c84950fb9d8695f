"""Coverage: how often a campaign reached each situation.

A situation (a cell) consists of the kind of a message, the receiver's role, the message's term
compared with the receiver's, the log position in the message compared with the receiver's log, and
the answer.
"""

from collections import Counter
from typing import NamedTuple

from dledger_node.raft.core import Raft
from dledger_node.raft.messages import Message
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.kinds import kind_of


class Cell(NamedTuple):
    """One situation, as words."""

    message: str
    role: str
    term: str
    """The message's term compared with the receiver's: older, same or newer."""
    log: str
    """The receiver's log compared with the position in the message: behind (ends before it), equal
    (ends there), ahead (holds it and more), conflicting (holds another entry), or - without one.
    """
    answer: str
    """The first message back to the sender, or "nothing"."""


class Coverage:
    """Counts cells. Call `before` a step, `sent` for each message in it, and `after` it."""

    def __init__(self) -> None:
        self.counts: Counter[Cell] = Counter()
        self._sender: str | None = None
        self._answer = "nothing"
        self._seen = ("", "", "", "")

    def before(self, raft: Raft, disk: SimDisk, message: Message) -> None:
        """Note the situation at the arrival of a message."""
        term = "same"
        if message.term != raft.term:
            term = "older" if message.term < raft.term else "newer"
        log = _log_relation(disk, message)
        self._seen = (type(message).__name__, raft.role.value, term, log)
        self._sender = message.sender
        self._answer = "nothing"

    def sent(self, message: Message) -> None:
        """Note a message that the receiver sends."""
        if message.receiver == self._sender and self._answer == "nothing":
            result = getattr(message, "result", None)
            self._answer = type(message).__name__ + (f" {result.value}" if result else "")

    def after(self) -> None:
        """Count the situation."""
        self.counts[Cell(*self._seen, self._answer)] += 1
        self._sender = None

    def told(self) -> str:
        """Return a table with one line per cell."""
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
