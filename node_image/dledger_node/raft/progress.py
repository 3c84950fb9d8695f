"""What a leader knows of one peer's log, and what is on its way there.

        begins a term, link lost, stalled, or a push refused
      +------------------------------------------------------+
      v                                                      |
   COMPARE -- the peer holds the entry before next_index --> APPEND

In COMPARE one question is open at a time and nothing is sent but it; in APPEND ranges are pushed
without waiting for answers. The names are DLedger's (`EntryDispatcherState`).
"""

import enum
from collections import deque
from dataclasses import dataclass, field

from dledger_node.raft.invariants import InvariantError


class PushState(enum.Enum):
    """Whether a peer's log is being compared, or pushed to."""

    COMPARE = "COMPARE"
    APPEND = "APPEND"


@dataclass(slots=True, kw_only=True)
class Progress:
    """One peer, in one term of this leader; made anew in every term, since a position that is
    left over from an earlier leadership makes the peer drop committed entries (DLedger 0.4 did).
    """

    next_index: int
    """The next entry to push; in COMPARE, the question is about the entry before it.

    Invariant: match_index < next_index.
    """
    match_index: int = -1
    """The peer holds the leader's entries up to here, durably."""
    state: PushState = PushState.COMPARE
    probe: int = 1
    """Number of the last question. Asked again, a question keeps its number; an answer counts only
    in COMPARE and with this number.
    """
    probe_due: bool = True
    """The question is to be sent, for the first time or again."""
    needs_install: bool = False
    """The peer has denied the leader's first entry: it is to be sent, not asked about."""
    compared_match_index: int = -1
    """match_index when COMPARE was last left: a peer that comes back to it unmoved is not hurried.
    """
    inflight: deque[int] = field(default_factory=deque)
    """Last index of each range that is not wholly confirmed, rising.

    Invariant: in APPEND, empty if match_index == next_index - 1; otherwise its last is
    next_index - 1, and its first is above match_index. In COMPARE, empty.
    """
    moved_tick: int = 0
    """When match_index last rose, or the first range of `inflight` was sent."""
    contact_tick: int
    """When the peer last answered anything."""
    join_asked_tick: int | None = None
    """When the peer last asked to join; None while it has not. Meanwhile it cannot lead."""
    answered_round: int = 0
    """The last heartbeat round that the peer answered."""
    is_voter: bool = True
    """The peer is a voter: it counts in quorums."""
    knows_promises: bool = False
    """The peer said, in that answer, that it knows what it has promised; see `joining`."""

    def compare(self, index: int, *, at_once: bool) -> None:
        """Ask next whether the peer holds the entry `index`; later, when not `at_once`."""
        self.state = PushState.COMPARE
        self.next_index = index + 1
        self.probe += 1
        self.probe_due = at_once
        self.needs_install = False
        self.inflight.clear()
        self._check()

    def append_after(self, index: int, now_ticks: int) -> None:
        """Go on pushing behind the entry `index`, which the peer holds, if not yet durably."""
        self.state = PushState.APPEND
        self.next_index = index + 1
        self.compared_match_index = self.match_index
        self.inflight.clear()
        if self.match_index < index:
            self.inflight.append(index)
        self.moved_tick = now_ticks
        self._check()

    def pushed(self, last_index: int, now_ticks: int) -> None:
        """Note that the entries next_index..last_index were sent."""
        if not self.inflight:
            self.moved_tick = now_ticks
        self.inflight.append(last_index)
        self.next_index = last_index + 1

    def confirm(self, match_index: int, now_ticks: int) -> None:
        """Note what the peer holds durably, and go on behind it at least."""
        if match_index <= self.match_index:
            return
        self.match_index = match_index
        self.moved_tick = now_ticks
        while self.inflight and self.inflight[0] <= match_index:
            self.inflight.popleft()
        if self.state is PushState.APPEND:
            self.next_index = max(self.next_index, match_index + 1)
        elif match_index >= self.next_index - 1:
            self.append_after(match_index, now_ticks)

    def awaits(self, probe: int) -> bool:
        """Tell whether the answer to this question still matters."""
        return self.state is PushState.COMPARE and probe == self.probe

    def stalled(self, now_ticks: int, stall_ticks: int) -> bool:
        """Tell whether what was pushed has gone without an answer for too long."""
        return bool(self.inflight) and now_ticks - self.moved_tick >= stall_ticks

    def _check(self) -> None:
        if self.match_index >= self.next_index:
            raise InvariantError(
                f"the next entry to push is {self.next_index}, but {self.match_index} is confirmed"
            )
