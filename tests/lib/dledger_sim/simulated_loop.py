"""An event loop of asyncio in simulated time."""

import asyncio
import selectors


class SkippingSelector(selectors.SelectSelector):
    """Advances a clock instead of waiting."""

    def __init__(self, now_s: float) -> None:
        super().__init__()
        self.now_s = now_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: its clock advances to the next timer instead."""

    def __init__(self, begin_s: float = 0.0) -> None:
        """The clock begins at `begin_s`."""
        self._skipping = SkippingSelector(begin_s)
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now_s
