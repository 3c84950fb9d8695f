"""The group as a run or a test drives it: faults, and queries of its state.

`runs.simulation` drives a `SimCluster` for a seed or a tape. A test drives one directly.
"""

from dledger_sim.faults.reshaping import agree
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.member import SimMember
from dledger_sim.group.running import RunningGroup
from dledger_sim.judges.history import check_history
from dledger_sim.runs.transcript import state_of


class SimCluster(RunningGroup):
    """A running group and its faults."""

    # -- faults ----------------------------------------------------------------------------------

    def lose_volume(self, member_id: str, kept_rate: float | None, *, down_us: int) -> None:
        """Crash a member and empty or damage its disk, unless another voter has lost its disk."""
        if self.older_disks.need(member_id) or not self.rotting.may_lose(member_id):
            return
        self.crash(member_id, down_us=down_us)
        self._note(member_id, "loses its volume" if kept_rate is None else "has a damaged volume")
        self.members[member_id].lose_volume(kept_rate)

    def remove_front(self, member_id: str, rate: float) -> None:
        """Let a member remove a part of its committed entries from the front."""
        self.fault_count += self.members[member_id].remove_front(rate)

    def split(self, side: set[str]) -> None:
        """Cut a set of members off from all others, in both directions."""
        for one in self.conditions.member_ids:
            for other in self.conditions.member_ids:
                if (one in side) != (other in side):
                    self.cut(one, other)

    def cut(self, sender: str, receiver: str) -> None:
        """Drop all messages from one member to another."""
        self._note(sender, f"is cut off on the way to {receiver}")
        self.fault_count += 1
        self.network.cut(sender, receiver)

    def disconnect(self, one: str, other: str) -> None:
        """Break the connections between two members; they cannot reconnect."""
        self.cut(one, other)
        self.cut(other, one)
        self._tell_link(one, other, lost=True)
        self._tell_link(other, one, lost=True)

    def clog(self, sender: str, receiver: str, duration_us: int) -> None:
        """Hold back the messages from one member to another for a while."""
        self._note(sender, f"is held up on the way to {receiver}")
        self.fault_count += 1
        self.network.clog(sender, receiver, self.now_us + duration_us)

    def heal_network(self) -> None:
        """Remove all cuts and delays."""
        self._note("", "the network heals")
        self.network.restore()

    def reset_link(self, one: str, other: str) -> None:
        """Break the connections between two members and drop their messages; both reconnect."""
        self._note(one, f"loses its connections with {other}")
        self.fault_count += 1
        for member_id, peer_id in ((one, other), (other, one)):
            self.network.links[member_id][peer_id].resets += 1
            self._tell_link(member_id, peer_id, lost=True)
            self._tell_link(member_id, peer_id, lost=False)

    def pause(self, member_id: str, duration_us: int) -> None:
        """Pause a member's process; its events wait."""
        self._note(member_id, f"is paused for {duration_us / 1000:.0f} ms")
        self.fault_count += 1
        self.members[member_id].paused_until_us = self.now_us + duration_us

    def fill_disk(self, member_id: str, duration_us: int) -> None:
        """Fill a member's disk for a while, so that no entry fits."""
        self._note(member_id, f"has a full disk for {duration_us / 1000:.0f} ms")
        self.fault_count += 1
        self._disks[member_id].full = True
        self.after(duration_us, self._free_disk, member_id)

    def calm(self, conditions: Conditions) -> None:
        """End all faults and continue under other conditions."""
        self.conditions = conditions
        self.network.conditions = conditions
        self.heal_network()
        for member in self.members.values():
            member.conditions = conditions
            member.chance_in_ready = False
            member.paused_until_us = self.now_us
            member.disk.full = False
            if member.raft is None:
                self._start(member.member_id)
        for member_id in self.members:
            self._notice_link(member_id, lost=False)

    # -- the end ---------------------------------------------------------------------------------

    def recovered(self, timeout_us: int) -> None:
        """Check what else a healed group must do."""

    def check_answers(self) -> None:
        """Compare all answers to clients with the committed log."""
        check_history(self.history, [entry.body for entry in self.checker.committed])

    def close(self) -> None:
        """Release what the run has taken from this machine."""

    # -- state ----------------------------------------------------------------------

    def leader(self) -> SimMember | None:
        """Return the master with the highest term, or None."""
        masters = [member for member in self.members.values() if member.raft and member.raft.master]
        return max(
            masters, key=lambda member: member.raft.term if member.raft else -1, default=None
        )

    def agreed(self) -> bool:
        """Return whether no member is joining, and all follow one master, which pushes to no
        other member, and have committed its whole log.
        """
        members = self.members.values()
        if not self.conditions.reshapes and len({one.committed_index for one in members}) > 1:
            return False  # the most frequent case, checked first
        leader = self.leader()
        return leader is not None and agree(self.members, leader)

    def owes_answers(self) -> bool:
        """Return whether a client waits for an answer of a running member."""
        return any(member.owes_answers for member in self.members.values())

    def described(self) -> str:
        """Describe the state of every member in one line."""
        return "; ".join(f"{name} {state_of(one.raft)}" for name, one in self.members.items())
