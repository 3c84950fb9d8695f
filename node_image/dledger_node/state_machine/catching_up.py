"""Whether a member's state is behind: it has to apply much that its log has had for a while.

Then the member should not lead yet (`raft.yielding`), since a leader serves only what it has
applied. A state is behind from the start of its member, if the log has committed entries after the
last snapshot, and whenever very many entries wait. It has caught up with the batch that reaches
everything that was committed when the batch began: under a steady load, a few entries always wait.

These rules are pure, so the simulator runs them too.
"""

from typing import Final

BEHIND_ENTRIES_MIN: Final = 32_768
"""Entries that wait from which on a state that had caught up is behind again: seconds of work."""


class CatchingUp:
    """Watches the applied index of one member, from its start on."""

    def __init__(self, behind_entries_min: int = BEHIND_ENTRIES_MIN) -> None:
        self.is_behind = True
        """Whether the state is behind; until the first turn it counts as behind."""
        self._has_begun = False
        self._behind_entries_min = behind_entries_min

    def note_committed(self, committed_index: int, applied_index: int) -> None:
        """Note how many entries wait."""
        waiting = committed_index - applied_index
        if not self._has_begun:
            self._has_begun = True
            self.is_behind = waiting > 0
        elif waiting >= self._behind_entries_min:
            self.is_behind = True

    def note_batch(self, target_index: int, applied_index: int) -> None:
        """Note the end of a batch that began when `target_index` was the committed index."""
        if applied_index >= target_index:
            self.is_behind = False
