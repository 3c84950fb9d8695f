"""The transcript of a run, with one line per event.

    ms      event  member  what                                 afterwards
    249.69    121  n1      AppendRequest n0>n1 t2 1..1/t2 …     F t2 of n0 end 1/t2 durable 0 …

Afterwards: role, term, leader, last index and term of the log, last durable and committed index.
"""

import hashlib
from collections import deque

from dledger_node.raft.core import Raft

LINES_MAX = 400
HEADER = f"{'ms':>10} {'event':>6}  {'who':3} {'what':64} afterwards"
"""The column `afterwards` is the result of `state_of`."""


class Transcript:
    """The last lines of a run, and a digest of all lines.

    `skip_idle` skips ticks and link events that did not change a member's visible state.
    """

    def __init__(self, lines_max: int = LINES_MAX, *, skip_idle: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=lines_max)
        self._skip_idle = skip_idle
        self._states: dict[str, str] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, now_us: int, number: int, who: str, what: str, afterwards: str) -> None:
        """Add a line, unless it is idle and idle lines are skipped."""
        unchanged = self._states.get(who) == afterwards
        self._states[who] = afterwards
        if self._skip_idle and unchanged and (what == "tick" or what.startswith("link to")):
            return
        line = f"{now_us / 1000:10.2f} {number:6d}  {who:3} {what:64} {afterwards}".rstrip()
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def hexdigest(self) -> str:
        """Return the digest of all lines. Equal digests mean equal runs."""
        return self._digest.hexdigest()


def state_of(raft: Raft | None) -> str:
    """Describe a member: role, term, leader, log end, durable and committed index, `joins`."""
    if raft is None:
        return "dead"
    return (
        f"{raft.role.value[0]} t{raft.term} of {raft.leader_id or '-'} "
        f"end {raft.ledger_end_index}/t{raft.ledger_end_term} durable {raft.durable_index} "
        f"committed {raft.committed_index}{' joins' if raft.joining else ''}"
    )
