"""The judge of pushes: their size and their number."""

from dledger_node.raft.messages import AppendRequest
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.kinds import described
from dledger_sim.judges.violation import ViolationError


class PushRules:
    """Counts the entries that leaders push, and their CompareRequests."""

    def __init__(self, conditions: Conditions) -> None:
        self.pushed_count = 0
        """Pushed entries; an entry counts each time that it is pushed."""
        self.question_count = 0
        """CompareRequests of all leaders."""
        self._conditions = conditions
        self._ranges_sent: dict[str, int] = {}

    def sending_batch(self) -> None:
        """Begin to count the pushes of a Ready."""
        self._ranges_sent.clear()

    def pushed(self, push: AppendRequest) -> None:
        """Check rule 13: the size of a push, and the number of pushes to a peer in one Ready."""
        self.pushed_count += push.last_index - push.first_index + 1
        count = self._ranges_sent.get(push.receiver, 0) + 1
        self._ranges_sent[push.receiver] = count
        limits = self._conditions
        if (
            push.last_index - push.first_index >= limits.push_entries_max
            or count > limits.inflight_ranges_max
        ):
            raise ViolationError(
                "pushes stay within their limits", f"push {count} of one Ready: {described(push)}"
            )
