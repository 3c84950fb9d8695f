"""A leader's knowledge of one peer's log, and the ranges in flight to it.

        new term, link lost, stalled, or a push refused
      +------------------------------------------------------+
      v                                                      |
   COMPARE -- the peer holds the entry before next_index --> APPEND

In COMPARE the leader sends one probe at a time and nothing else. In APPEND it pushes ranges without
waiting for answers. The names are DLedger's (`EntryDispatcherState`).
"""

import enum
from collections import deque
from dataclasses import dataclass, field

from dledger_node.raft.invariants import InvariantError


class PushState(enum.Enum):
    """Whether the leader compares a peer's log, or pushes entries to it."""

    COMPARE = "COMPARE"
    APPEND = "APPEND"


@dataclass(slots=True, kw_only=True)
class Progress:
    """One peer, in one term of this leader.

    Every term starts with a new instance: with a position from an earlier term, the peer would drop
    committed entries (as in DLedger 0.4).
    """

    next_index: int
    """The next entry to push; in COMPARE, the probe asks about the entry before it.

    Invariant: match_index < next_index.
    """
    match_index: int = -1
    """The peer durably holds the leader's entries up to this index."""
    state: PushState = PushState.COMPARE
    probe: int = 1
    """Number of the last probe. A repeated probe keeps its number. A response counts only in
    COMPARE and with this number.
    """
    probe_due: bool = True
    """Whether the probe must be sent, for the first time or again."""
    needs_install: bool = False
    """Whether the peer lacks the leader's first entry, which is then sent instead of a probe."""
    compared_match_index: int = -1
    """match_index when the peer last left COMPARE. A peer that returns to COMPARE without progress
    is probed at the next heartbeat, not at once.
    """
    inflight: deque[int] = field(default_factory=deque)
    """Last index of each range that is not fully confirmed, in increasing order.

    Invariant: in APPEND, empty if match_index == next_index - 1; otherwise its last is
    next_index - 1, and its first is above match_index. In COMPARE, empty.
    """
    moved_tick: int = 0
    """The tick at which match_index last rose, or the first range of `inflight` was sent."""
    contact_tick: int
    """The tick of the peer's last response."""
    join_asked_tick: int | None = None
    """The tick of the peer's last JoinRequest; None before the first. A joining peer cannot lead.
    """
    answered_round: int = 0
    """The last heartbeat round that the peer answered."""
    is_voter: bool = True
    """Whether the peer counts in quorums."""
    knows_promises: bool = False
    """Whether the peer, by its last heartbeat response, is not joining (`joining`)."""
    is_full: bool = False
    """Whether the peer's volume, by its last heartbeat response, is full."""
    reported_index: int = -1
    """The committed index that was reported to the peer, as far as it can commit. Only kept if
    `RaftConfig.notices_per_tick_max` is set.
    """
    declined_tick: int | None = None
    """The tick at which the peer last declined the leadership (`yielding`); None if it has not."""

    def compare(self, index: int, *, at_once: bool) -> None:
        """Enter COMPARE with a probe for entry `index`; send it later unless `at_once`."""
        self.state = PushState.COMPARE
        self.next_index = index + 1
        self.probe += 1
        self.probe_due = at_once
        self.needs_install = False
        self.inflight.clear()
        self._check()

    def append_after(self, index: int, now_ticks: int) -> None:
        """Enter APPEND after entry `index`, which the peer holds, though perhaps not durably."""
        self.state = PushState.APPEND
        self.next_index = index + 1
        self.compared_match_index = self.match_index
        self.inflight.clear()
        if self.match_index < index:
            self.inflight.append(index)
        self.moved_tick = now_ticks
        self._check()

    def pushed(self, last_index: int, now_ticks: int) -> None:
        """Record that the entries next_index..last_index were sent."""
        if not self.inflight:
            self.moved_tick = now_ticks
        self.inflight.append(last_index)
        self.next_index = last_index + 1

    def confirm(self, match_index: int, now_ticks: int) -> None:
        """Record the index up to which the peer is durable, and move next_index past it."""
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
        """Return whether this number is that of the open probe."""
        return self.state is PushState.COMPARE and probe == self.probe

    def stalled(self, now_ticks: int, stall_ticks: int) -> bool:
        """Return whether in-flight ranges have made no progress for `stall_ticks`."""
        return bool(self.inflight) and now_ticks - self.moved_tick >= stall_ticks

    def _check(self) -> None:
        if self.match_index >= self.next_index:
            raise InvariantError(
                f"next_index is {self.next_index}, but entry {self.match_index} is confirmed"
            )
