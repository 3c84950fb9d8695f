"""What happened, one line an event.

    ms      event  member  what                                 afterwards
    249.69    121  n1      AppendRequest n0>n1 t2 1..1/t2 …     F t2 of n0 end 1/t2 durable 0 …

Afterwards: role, term, leader, the log's last index and term, how much is durable and committed.
"""

import hashlib
from collections import deque

from dledger_node.raft.core import Raft

LINES_MAX = 400
HEADER = f"{'ms':>10} {'event':>6}  {'who':3} {'what':64} afterwards"
"""Afterwards: the member's role (F, C, L), term, leader, the log's last index and its term, up to
where the log is durable, up to where it is committed; joins, while it is no voter yet.
"""


class Transcript:
    """The last lines of a run, and a digest of all of them.

    Idle is a tick, or news of a link, that changed nothing to be seen.
    """

    def __init__(self, lines_max: int = LINES_MAX, *, skip_idle: bool = False) -> None:
        self.lines: deque[str] = deque(maxlen=lines_max)
        self._skip_idle = skip_idle
        self._states: dict[str, str] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, now_us: int, number: int, who: str, what: str, afterwards: str) -> None:
        """Write one line, unless it is idle and those are skipped."""
        unchanged = self._states.get(who) == afterwards
        self._states[who] = afterwards
        if self._skip_idle and unchanged and (what == "tick" or what.startswith("link to")):
            return
        line = f"{now_us / 1000:10.2f} {number:6d}  {who:3} {what:64} {afterwards}".rstrip()
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def hexdigest(self) -> str:
        """Two runs with the same digest went alike."""
        return self._digest.hexdigest()


def state_of(raft: Raft | None) -> str:
    """A member in a few words."""
    if raft is None:
        return "dead"
    return (
        f"{raft.role.value[0]} t{raft.term} of {raft.leader_id or '-'} "
        f"end {raft.ledger_end_index}/t{raft.ledger_end_term} durable {raft.durable_index} "
        f"committed {raft.committed_index}{' joins' if raft.joining else ''}"
    )
