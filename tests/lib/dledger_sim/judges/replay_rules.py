"""The judge of members whose state is behind: they lead only if no ready member can."""

from collections import Counter
from collections.abc import Mapping

from dledger_node.raft.messages import Message, VoteRequest
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.judges.violation import ViolationError


class ReplayRules:
    """Tracks which members are up, and which of them are behind, by their ticks.

    A member is behind, here, until it has applied what it knew to be committed at its start.
    """

    def __init__(self, conditions: Conditions, disks: Mapping[str, SimDisk]) -> None:
        self.counts: Counter[str] = Counter()
        """Counts of elections by name."""
        self._is_calm = conditions.replays
        self._disks = disks
        self._behind: dict[str, bool] = {}
        """Whether each member that is up is behind."""
        self._targets: dict[str, int] = {}
        """The index that each member knew to be committed at its start."""
        self._leader_id = ""
        self._successors: set[str] = set()
        """Members that were ready when the last leader died, if none has died since."""

    def started(self, member_id: str, committed_index: int) -> None:
        """Note that a member starts, with this committed index."""
        self._targets[member_id] = committed_index

    def ticks(self, member_id: str, applied_index: int) -> None:
        """Note the applied index that a member's core receives with a tick."""
        self._behind[member_id] = applied_index < self._targets[member_id]

    def died(self, member_id: str) -> None:
        """Note that a member has crashed. A second death may cost an election its votes."""
        self._behind.pop(member_id, None)
        ready = {one for one, is_behind in self._behind.items() if not is_behind}
        self._successors = ready if member_id == self._leader_id else set()
        self._leader_id = "" if member_id == self._leader_id else self._leader_id

    def sending(self, message: Message) -> None:
        """Check rule 46: no member whose state is behind accepts a transferred leadership."""
        match message:
            case VoteRequest(take_leadership=True) if self._is_behind(message.sender):
                raise ViolationError(
                    "a member whose state is behind takes no leadership",
                    f"{message.sender} takes over in term {message.term}",
                )
            case _:
                pass

    def elected(self, member_id: str) -> None:
        """Check rule 47: a ready member with the same log leads before one that is behind.

        Only calm groups keep this rule: in others, the ready member may be cut off.
        """
        successors, self._successors = self._successors, set()
        self._leader_id = member_id
        if not self._is_behind(member_id):
            if any(self._behind.values()):
                self.counts["elected_ready"] += 1
            return
        self.counts["elected_behind"] += 1
        if not self._is_calm:
            return
        end = self._end(member_id, before_noop=True)
        fit = sorted(one for one in successors if self._end(one) >= end)
        if fit:
            raise ViolationError(
                "a member that is ready leads before one whose state is behind",
                f"{member_id} is elected, although {fit} could have been",
            )

    def _is_behind(self, member_id: str) -> bool:
        return self._behind.get(member_id, False)

    def _end(self, member_id: str, *, before_noop: bool = False) -> tuple[int, int]:
        log = self._disks[member_id].cached
        count = len(log) - before_noop
        return (log[count - 1].term, count) if count else (-1, 0)
