"""An event loop whose turns a test runs, and a clock that only work moves."""

from collections.abc import Callable


class TurningLoop:
    """Keeps what is due in the next turn; work adds to `now_s` what it takes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[Callable[[], None]] = []

    def turn(self) -> float:
        """Run what is due; return how long it took."""
        began_s, (due, self.due) = self.now_s, (self.due, [])
        for run in due:
            run()
        return self.now_s - began_s
