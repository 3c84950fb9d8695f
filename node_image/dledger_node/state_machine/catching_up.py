"""Whether a member's state is behind: it has not yet applied what was committed when it started.

Then the member should not lead yet (`raft.yielding`), since a leader serves only what it has
applied. Its checkpoint may state a lower index than was committed. So the start is over only once
the state has reached the committed index that a leader has reported since the start, or, if this
member leads, its term's first entry. After that, the state never counts as behind: under overload,
all members of a group fall behind together, and then one of them must be elected at once.

Until then, the state is behind if it lacks entries that are known to be committed, or many that may
be. A few are applied within a moment and are no reason to wait: after the restart of a whole group,
no member knows that its last entries are committed. A state has caught up with the batch that
reaches everything that was committed when the batch began: under a steady load, a few entries
always wait.

These rules are pure, so the simulator runs them too.
"""

from typing import Final

from dledger_node.raft.yielding import ReportedCommit

FEW_ENTRIES: Final = 4096
"""A starting state is behind if at least this many entries that may be committed are not applied.
One batch of the state machine takes as many.
"""


class CatchingUp:
    """Watches the applied index of one member, from its start on."""

    def __init__(self, few_entries: int = FEW_ENTRIES) -> None:
        self.is_behind = True
        """Whether the state is behind; until the first turn it counts as behind."""
        self._few_entries = few_entries
        self._known_index: int | None = None
        """The committed index at the first turn; None before it."""
        self._aim = -1
        """The last entry that may have been committed at the start."""
        self._has_caught_up = False

    def note_turn(
        self, committed_index: int, applied_index: int, end_index: int, reported: ReportedCommit
    ) -> None:
        """Note how far the log and the state are, and what a leader has reported."""
        if self._has_caught_up:
            return
        if self._known_index is None:
            self._known_index, self._aim = committed_index, end_index
            self.is_behind = applied_index < committed_index
        if reported.is_settled:
            self._aim = max(reported.index, self._known_index)
            self._has_caught_up = applied_index >= self._aim
        else:
            self._aim = max(self._aim, reported.index)
        if self._has_caught_up:
            self.is_behind = False
        elif self._aim - applied_index >= self._few_entries:
            self.is_behind = True

    def note_batch(self, target_index: int, applied_index: int) -> None:
        """Note the end of a batch that began when `target_index` was the committed index."""
        may_wait = self._aim - applied_index
        if applied_index >= target_index and may_wait < self._few_entries:
            self.is_behind = False
