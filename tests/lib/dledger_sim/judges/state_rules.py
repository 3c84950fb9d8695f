"""The judge of states: applied entries, snapshots, and entries removed from the front."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dledger_node.state_machine.restore import Applied
from dledger_sim.group.disk import Entry, KeptSnapshot, SimDisk
from dledger_sim.group.snapshots import DIGESTS, States
from dledger_sim.judges.violation import ViolationError


class StateRules:
    """Computes the true states from the committed log, never from a member."""

    def __init__(
        self, disks: Mapping[str, SimDisk], committed: list[Entry], states: States = DIGESTS
    ) -> None:
        """`committed` is the checker's committed log, which grows."""
        self._disks = disks
        self._committed = committed
        self._states = states
        self._truth = states.make("the truth")
        self._dumps = [b"".join(self._truth.dump())]
        """The dump of each true state; the first is the state without entries."""
        self.counts: Counter[str] = Counter()
        """Counts of events by name."""

    def begins(self, member_id: str, applied: Applied, begin_index: int) -> None:
        """Check rules 27 and 28 when a member starts with a state."""
        self.reaches(member_id, applied.index, begin_index)
        self.has(member_id, applied.index, applied.machine.dump())

    def has(self, member_id: str, index: int, pieces: Iterable[bytes]) -> None:
        """Check rules 26 and 27: the applied entries are committed, and the state matches them."""
        if index >= len(self._committed):
            raise ViolationError(
                "only committed entries are applied",
                f"{member_id} applied {index}, the committed index is {len(self._committed) - 1}",
            )
        if b"".join(pieces) != self._true_dump(index):
            raise ViolationError(
                "a state matches the log up to its applied index",
                f"{member_id} has a state after entry {index} that the log does not produce",
            )

    def keeps(self, member_id: str, kept: KeptSnapshot) -> None:
        """Check rules 26 and 27 for a snapshot that has become durable."""
        index, term = kept.meta.last_included_index, kept.meta.last_included_term
        self.has(member_id, index, [kept.data])
        if term != self._committed[index].term:
            raise ViolationError(
                "a state matches the log up to its applied index",
                f"{member_id} keeps a snapshot up to entry {index} with the wrong term {term}",
            )

    def replaces_log(self, member_id: str, first_index: int) -> None:
        """Check rule 28 when a log starts over: a durable snapshot ends where the log begins."""
        self.counts["logs_begun_anew"] += 1
        self.reaches(member_id, max(self._disks[member_id].snapshots, default=-1), first_index)

    def removes_front(self, member_id: str, first_index: int) -> None:
        """Check rule 29: every intact snapshot includes the entries that the log front loses.

        A member that has not noticed that all of its snapshots are damaged relies on them.
        """
        self.counts["fronts_removed"] += 1
        snapshots = self._disks[member_id].snapshots
        sound = [index for index, kept in snapshots.items() if kept.sound]
        index = min(sound or snapshots, default=-1)
        if index < first_index - 1:
            raise ViolationError(
                "snapshots include the entries removed from the front",
                f"{member_id} removes entries before {first_index}, its snapshot ends at {index}",
            )

    def reaches(self, member_id: str, index: int, begin_index: int) -> None:
        """Check rule 28: the log begins no later than the entry after the state."""
        if index < begin_index - 1:
            raise ViolationError(
                "there is no gap between a state and its log",
                f"{member_id} has a state up to {index}, and a log from {begin_index} on",
            )

    def _true_dump(self, index: int) -> bytes:
        for at in range(len(self._dumps) - 1, index + 1):
            self._truth.apply(self._states.applicable(self._committed[at : at + 1], at))
            self._dumps.append(b"".join(self._truth.dump()))
        return self._dumps[index + 1]
