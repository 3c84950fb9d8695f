"""The judge of states: what members have applied, what they keep of it, and what they remove."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dledger_node.state_machine.restore import Applied
from dledger_sim.group.disk import Entry, KeptSnapshot, SimDisk
from dledger_sim.group.snapshots import SimState, applicable
from dledger_sim.judges.violation import ViolationError


class StateRules:
    """Knows states from the committed log alone, never from a member."""

    def __init__(self, disks: Mapping[str, SimDisk], committed: list[Entry]) -> None:
        """`committed` is the judge's, and grows."""
        self._disks = disks
        self._committed = committed
        self._truth = SimState()
        self._dumps = [b"".join(self._truth.dump())]
        """The bytes of each state that ever was, the first being of no entry."""
        self.counts: Counter[str] = Counter()
        """What happened, by its name."""

    def begins(self, member_id: str, applied: Applied, begin_index: int) -> None:
        """Rule 28: a state begins where nothing is missing between it and the log."""
        self.reaches(member_id, applied.index, begin_index)
        self.has(member_id, applied.index, applied.machine.dump())

    def has(self, member_id: str, index: int, pieces: Iterable[bytes]) -> None:
        """Rules 26 and 27: what a member has applied is committed; and its state is of that."""
        if index >= len(self._committed):
            raise ViolationError(
                "only committed entries are applied",
                f"{member_id} has applied {index}, committed is {len(self._committed) - 1}",
            )
        if b"".join(pieces) != self._true_dump(index):
            raise ViolationError(
                "a state matches the log up to its applied index",
                f"{member_id} has another state after entry {index} than the log makes of it",
            )

    def keeps(self, member_id: str, kept: KeptSnapshot) -> None:
        """The same of a snapshot that has become durable."""
        index, term = kept.meta.last_included_index, kept.meta.last_included_term
        self.has(member_id, index, [kept.data])
        if term != self._committed[index].term:
            raise ViolationError(
                "a state matches the log up to its applied index",
                f"{member_id} keeps a snapshot up to entry {index}, of term {term}",
            )

    def replaces_log(self, member_id: str, first_index: int) -> None:
        """Rule 28, as a log begins anew: a durable snapshot holds all that comes before it."""
        self.counts["logs_begun_anew"] += 1
        self.reaches(member_id, max(self._disks[member_id].snapshots, default=-1), first_index)

    def removes_front(self, member_id: str, first_index: int) -> None:
        """Rule 29: each sound snapshot of a member still leads to its log when the front goes.

        Where none is sound, the member may not have found that out, and goes by those it has.
        """
        self.counts["fronts_removed"] += 1
        snapshots = self._disks[member_id].snapshots
        sound = [index for index, kept in snapshots.items() if kept.sound]
        index = min(sound or snapshots, default=-1)
        if index < first_index - 1:
            raise ViolationError(
                "snapshots include the entries removed from the front",
                f"{member_id} removes all before {first_index}, and keeps a snapshot up to {index}",
            )

    def reaches(self, member_id: str, index: int, begin_index: int) -> None:
        """Rule 28: a log goes on from a state."""
        if index < begin_index - 1:
            raise ViolationError(
                "there is no gap between a state and its log",
                f"{member_id} has a state of {index}, and a log from {begin_index} on",
            )

    def _true_dump(self, index: int) -> bytes:
        for at in range(len(self._dumps) - 1, index + 1):
            self._truth.apply(applicable(self._committed[at : at + 1], at))
            self._dumps.append(b"".join(self._truth.dump()))
        return self._dumps[index + 1]
