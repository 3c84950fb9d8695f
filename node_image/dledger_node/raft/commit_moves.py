"""How often a leader's committed index moves, which shows whether its next push comes soon."""

from dataclasses import dataclass


@dataclass(slots=True)
class CommitMoves:
    """Counts the moves of the committed index in this tick and in the one before."""

    _index: int = -1
    """The committed index when it was last counted."""
    _at_ticks: int = 0
    """The tick whose moves `_moves` counts, by a clock that includes pauses."""
    _moves: int = 0
    _moves_before: int = 0

    def per_tick(self, committed_index: int, now_ticks: int) -> int:
        """Count a move if the index has risen, and return the moves in a tick.

        They are those of this tick or of the last one, whichever are more.
        """
        if self._at_ticks != now_ticks:
            self._moves_before = self._moves if self._at_ticks == now_ticks - 1 else 0
            self._at_ticks, self._moves = now_ticks, 0
        if self._index < committed_index:
            self._index = committed_index
            self._moves += 1
        return max(self._moves, self._moves_before)
