"""The group as a life or a test sees it: what goes wrong, and what it has come to.

A seed's life or a tape (`runs.simulation`) drives `SimCluster`, or a test, which crashes, cuts and
waits for conditions by itself.
"""

from dledger_sim.faults.reshaping import agree
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.member import SimMember
from dledger_sim.group.running import RunningGroup
from dledger_sim.runs.transcript import state_of


class SimCluster(RunningGroup):
    """A running group, with its faults."""

    # -- faults ----------------------------------------------------------------------------------

    def lose_volume(self, member_id: str, kept_rate: float | None, *, down_us: int) -> None:
        """Kill a member, and empty or damage its disk unless another voter lost its own already."""
        if self.older_disks.need(member_id) or not self.rotting.may_lose(member_id):
            return
        self.crash(member_id, down_us=down_us)
        self._note(member_id, "loses its volume" if kept_rate is None else "has a damaged volume")
        self.members[member_id].lose_volume(kept_rate)

    def remove_front(self, member_id: str, rate: float) -> None:
        """Let a member remove part of what it knows as committed."""
        self.fault_count += self.members[member_id].remove_front(rate)

    def split(self, side: set[str]) -> None:
        """Cut a side off from all others, both ways."""
        for one in self.conditions.member_ids:
            for other in self.conditions.member_ids:
                if (one in side) != (other in side):
                    self.cut(one, other)

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing through from one to the other."""
        self._note(sender, f"is cut off on the way to {receiver}")
        self.fault_count += 1
        self.network.cut(sender, receiver)

    def disconnect(self, one: str, other: str) -> None:
        """Break the connections between two members, which cannot be made again."""
        self.cut(one, other)
        self.cut(other, one)
        self._tell_link(one, other, lost=True)
        self._tell_link(other, one, lost=True)

    def clog(self, sender: str, receiver: str, duration_us: int) -> None:
        """Hold back what one sends to the other, for a while."""
        self._note(sender, f"is held up on the way to {receiver}")
        self.fault_count += 1
        self.network.clog(sender, receiver, self.now_us + duration_us)

    def heal_network(self) -> None:
        """Let everything through again."""
        self._note("", "the network heals")
        self.network.restore()

    def reset_link(self, one: str, other: str) -> None:
        """Break the connections between two members, with what travels; both reconnect at once."""
        self._note(one, f"loses its connections with {other}")
        self.fault_count += 1
        for member_id, peer_id in ((one, other), (other, one)):
            self.network.links[member_id][peer_id].resets += 1
            self._tell_link(member_id, peer_id, lost=True)
            self._tell_link(member_id, peer_id, lost=False)

    def pause(self, member_id: str, duration_us: int) -> None:
        """Stop a member's process; what it misses waits for it."""
        self._note(member_id, f"is paused for {duration_us / 1000:.0f} ms")
        self.fault_count += 1
        self.members[member_id].paused_until_us = self.now_us + duration_us

    def fill_disk(self, member_id: str, duration_us: int) -> None:
        """Leave a member no room for entries, for a while."""
        self._note(member_id, f"has a full disk for {duration_us / 1000:.0f} ms")
        self.fault_count += 1
        self._disks[member_id].full = True
        self.after(duration_us, self._free_disk, member_id)

    def calm(self, conditions: Conditions) -> None:
        """End all faults, and go on under other conditions."""
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

    # -- what it has come to ----------------------------------------------------------------------

    def leader(self) -> SimMember | None:
        """The master of the highest term, if there is one."""
        masters = [member for member in self.members.values() if member.raft and member.raft.master]
        return max(
            masters, key=lambda member: member.raft.term if member.raft else -1, default=None
        )

    def agreed(self) -> bool:
        """Whether all members know their promises, follow one master that pushes to nobody else,
        and have all of its log, committed.
        """
        members = self.members.values()
        if not self.conditions.reshapes and len({one.committed_index for one in members}) > 1:
            return False  # which is nearly always so
        leader = self.leader()
        return leader is not None and agree(self.members, leader)

    def described(self) -> str:
        """Every member in a few words."""
        return "; ".join(f"{name} {state_of(one.raft)}" for name, one in self.members.items())
