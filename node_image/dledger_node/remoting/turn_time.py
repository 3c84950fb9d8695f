"""The time that work of one kind may take in a turn of the event loop.

Such work has its own callback in each turn, and is also done at once when it comes up: when bytes
arrive, or when other work lets a connection continue. In a turn, this may be before the callback or
after it. So a slice covers the time from the end of the callback in one turn to the beginning of
the callback two turns later. Between any point of a turn and the same point of the next turn there
is only one callback, and therefore at most one slice.
"""


class TurnTime:
    """Counts what work of one kind has spent in a turn of the loop."""

    def __init__(self, slice_s: float) -> None:
        """No piece of work begins once the turn has spent `slice_s` on this kind of work."""
        self._slice_s = slice_s
        self._spent_s = 0.0
        # What was spent since the last callback ended.
        self._since_callback_s = 0.0

    @property
    def left_s(self) -> float:
        """The time that this turn may still spend; zero or less if no work may begin."""
        return self._slice_s - self._spent_s

    def spend(self, took_s: float) -> None:
        """Count the time that a piece of work took."""
        self._spent_s += took_s
        self._since_callback_s += took_s

    def callback_begins(self) -> None:
        """Forget what was spent before the end of the last callback: that was the last turn."""
        self._spent_s = self._since_callback_s

    def callback_ends(self) -> None:
        """Start counting the time that the next callback deducts from its slice."""
        self._since_callback_s = 0.0
