"""A queue of calls that wait: for the leader, for another member, or for a sequence."""

from collections import deque
from collections.abc import Callable

from dledger_client.calls.call import Call


class CallQueue(deque[Call]):
    """Calls in the order in which they are to be sent."""

    def take_all(self) -> list[Call]:
        """Remove all calls and return them; the caller may queue them again meanwhile."""
        calls = list(self)
        self.clear()
        return calls

    def take_if(self, is_taken: Callable[[Call], bool]) -> list[Call]:
        """Remove some calls and return them; the others keep their order."""
        taken: list[Call] = []
        kept: list[Call] = []
        for call in self:
            (taken if is_taken(call) else kept).append(call)
        self.clear()
        self.extend(kept)
        return taken
