"""The time that work of one kind may take in a turn of the event loop.

Such work has a callback of its own in each turn, and is also done at once where it comes up: when
bytes arrive, or when other work lets a connection go on. That may be before its own callback in a
turn and after it. So the time counts from the end of the own callback in one turn to the beginning
of that in the turn after the next. From any point of a turn to the same point of the next one lies
only one own callback, and therefore at most one slice.
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
        """What this turn may still spend; zero or less if nothing may begin."""
        return self._slice_s - self._spent_s

    def spend(self, took_s: float) -> None:
        """Note that a piece of work has taken so long."""
        self._spent_s += took_s
        self._since_callback_s += took_s

    def callback_begins(self) -> None:
        """Forget what was spent before the end of the last callback: that was the last turn."""
        self._spent_s = self._since_callback_s

    def callback_ends(self) -> None:
        """Count from now on what the next callback has to take off its slice."""
        self._since_callback_s = 0.0
