"""The group and its time: one heap of events, one seed.

`SimCluster` is driven by `run` (a seed's whole life, in `simulation`) or by a test, which crashes,
cuts and waits for conditions by itself.
"""

import heapq
import random
from collections.abc import Callable
from functools import partial

from dledger_node.raft.messages import Message
from dledger_sim.checker import Checker
from dledger_sim.conditions import TICK_US, Conditions
from dledger_sim.disk import SimDisk
from dledger_sim.member import DiedError, SimMember
from dledger_sim.network import SimNetwork
from dledger_sim.transcript import Transcript, described
from dledger_sim.violation import ViolationError

HARD_STATE_US = 15_000
NOTICE_US = 500
"""How long it takes to learn that a peer's process has died."""


class SimCluster:
    """Members, their disks, the network between them, and the judge."""

    def __init__(
        self, conditions: Conditions, rng: random.Random, transcript: Transcript | None = None
    ) -> None:
        self.conditions = conditions
        self.now_us = 0
        self.event_count = 0
        self.transcript = transcript
        disks = {member_id: SimDisk() for member_id in conditions.member_ids}
        self.checker = Checker(disks)
        self.network = SimNetwork(conditions, rng)
        self.members = {
            member_id: SimMember(member_id, conditions, disk, self.checker, rng, self._send)
            for member_id, disk in disks.items()
        }
        self._rng = rng
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._planned_count = 0
        self._proposed_count = 0
        for member_id in conditions.member_ids:
            self._start(member_id)

    # -- time ------------------------------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Plan an event."""
        self._planned_count += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._planned_count, action))

    def step(self) -> None:
        """Let the next event happen."""
        self.now_us, _, action = heapq.heappop(self._events)
        self.event_count += 1
        action()

    def run_until(self, condition: Callable[[], bool], timeout_us: int) -> None:
        """Let events happen until the condition holds; ViolationError when it does not in time."""
        deadline_us = self.now_us + timeout_us
        while not condition():
            if self.now_us > deadline_us:
                raise ViolationError(f"not within {timeout_us / 1000:.0f} ms: {self.described()}")
            self.step()

    # -- faults ----------------------------------------------------------------------------------

    def crash(self, member_id: str, *, down_us: int) -> None:
        """Kill a member, and start it again after a while; nothing happens to a dead one."""
        member = self.members[member_id]
        if member.raft is None:
            return
        self._note(member_id, "crashes")
        member.die()
        self._notice_link(member_id, lost=True)
        self.after(down_us, partial(self._start, member_id))

    def split(self, side: set[str]) -> None:
        """Cut a side off from all others, both ways."""
        for one in self.conditions.member_ids:
            for other in self.conditions.member_ids:
                if (one in side) != (other in side):
                    self.cut(one, other)

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing through from one to the other."""
        self._note(sender, f"is cut off on the way to {receiver}")
        self.network.cut(sender, receiver)

    def heal_network(self) -> None:
        """Let everything through again."""
        self._note("", "the network heals")
        self.network.restore()

    def reset_link(self, one: str, other: str) -> None:
        """Break the connections between two members; both have new ones at once."""
        for member_id, peer_id in ((one, other), (other, one)):
            self._tell_link(member_id, peer_id, lost=True)
            self._tell_link(member_id, peer_id, lost=False)

    def pause(self, member_id: str, duration_us: int) -> None:
        """Stop a member's process; what it misses waits for it."""
        self._note(member_id, f"is paused for {duration_us / 1000:.0f} ms")
        self.members[member_id].paused_until_us = self.now_us + duration_us

    def calm(self, conditions: Conditions) -> None:
        """End all faults, and go on under other conditions."""
        self.conditions = conditions
        self.network.conditions = conditions
        self.heal_network()
        for member in self.members.values():
            member.conditions = conditions
            member.paused_until_us = self.now_us
            if member.raft is None:
                self._start(member.member_id)
        for member_id in self.members:
            self._notice_link(member_id, lost=False)

    # -- clients ---------------------------------------------------------------------------------

    def propose(self, member_id: str, count: int) -> None:
        """Let a client append to a member, whether it leads or not."""
        member = self.members[member_id]
        if member.raft is None or self.now_us < member.paused_until_us:
            return
        bodies = tuple(range(self._proposed_count + 1, self._proposed_count + count + 1))
        self._proposed_count += count
        member.propose(bodies)
        self._work(member, f"is asked to append {count}")

    def leader(self) -> SimMember | None:
        """The master of the highest term, if there is one."""
        masters = [member for member in self.members.values() if member.raft and member.raft.master]
        return max(
            masters, key=lambda member: member.raft.term if member.raft else -1, default=None
        )

    def agreed(self) -> bool:
        """Whether all members follow one master and have all of its log, committed."""
        leader = self.leader()
        if leader is None or leader.raft is None:
            return False
        end_index = leader.raft.ledger_end_index
        return all(
            member.raft is not None
            and member.raft.leader_id == leader.member_id
            and member.committed_index == end_index
            for member in self.members.values()
        )

    def described(self) -> str:
        """Every member in a few words."""
        return "; ".join(f"{name} {self._state(name)}" for name in self.members)

    # -- events ----------------------------------------------------------------------------------

    def _start(self, member_id: str) -> None:
        member = self.members[member_id]
        if member.raft is not None:
            return
        member.start()
        self._note(member_id, "starts")
        self._notice_link(member_id, lost=False)
        self.after(self._rng.randint(1, TICK_US), partial(self._tick, member, member.life))

    def _tick(self, member: SimMember, life: int) -> None:
        if not self._awake(member, life, partial(self._tick, member, life)):
            return
        assert member.raft is not None
        member.raft.tick()
        self.after(TICK_US, partial(self._tick, member, life))
        self._work(member, "tick")

    def _send(self, message: Message) -> None:
        for arrival_us in self.network.arrivals_us(self.now_us, message.sender, message.receiver):
            self.after(arrival_us - self.now_us, partial(self._deliver, message))

    def _deliver(self, message: Message) -> None:
        member = self.members[message.receiver]
        if not self._awake(member, member.life, partial(self._deliver, message)):
            return
        assert member.raft is not None
        member.raft.step(message)
        self._work(member, described(message) if self.transcript else "")

    def _flushed(self, member: SimMember, life: int) -> None:
        if not self._awake(member, life, partial(self._flushed, member, life)):
            return
        assert member.raft is not None
        durable = member.disk.finish_flush()
        if durable is not None:
            member.raft.persisted(*durable)
        self._work(member, f"flushed {durable}")

    def _hard_state_saved(self, member: SimMember, life: int) -> None:
        if not self._awake(member, life, partial(self._hard_state_saved, member, life)):
            return
        self._work(member, "has saved its hard state", first=member.hard_state_saved)

    def _tell_link(self, member_id: str, peer_id: str, *, lost: bool) -> None:
        if self._rng.random() < self.conditions.notice_link:
            self.after(NOTICE_US, partial(self._link, member_id, peer_id, lost=lost))

    def _link(self, member_id: str, peer_id: str, *, lost: bool) -> None:
        member = self.members[member_id]
        action = partial(self._link, member_id, peer_id, lost=lost)
        if not self._awake(member, member.life, action):
            return
        assert member.raft is not None
        if lost:
            member.raft.link_lost(peer_id)
        else:
            member.raft.link_restored(peer_id)
        self._work(member, f"link to {peer_id} {'lost' if lost else 'restored'}")

    # -- helpers ---------------------------------------------------------------------------------

    def _awake(self, member: SimMember, life: int, again: Callable[[], None]) -> bool:
        """Whether a member may handle an event now; a paused one handles it later."""
        if member.raft is None or member.life != life:
            return False
        if self.now_us < member.paused_until_us:
            self.after(member.paused_until_us - self.now_us, again)
            return False
        return True

    def _work(self, member: SimMember, what: str, first: Callable[[], None] | None = None) -> None:
        """Let a member do what its core asks for, and begin a flush if there is something."""
        try:
            if first is not None:
                first()
            if member.saving is None and member.work():
                self.after(HARD_STATE_US, partial(self._hard_state_saved, member, member.life))
        except DiedError:
            self._note(member.member_id, what)
            self.crash(member.member_id, down_us=HARD_STATE_US)
            return
        if member.raft is not None and member.raft.contradiction:
            raise ViolationError(f"{member.member_id} refused: {member.raft.contradiction}")
        if member.disk.pending and member.disk.flush is None:
            member.disk.begin_flush()
            duration_us = int(self._rng.expovariate(1 / self.conditions.flush_us))
            self.after(duration_us, partial(self._flushed, member, member.life))
        self._note(member.member_id, what)

    def _notice_link(self, member_id: str, *, lost: bool) -> None:
        """Let peers, and a starting member, learn of its connections."""
        for peer_id in self.conditions.member_ids:
            if peer_id != member_id:
                self._tell_link(peer_id, member_id, lost=lost)
                if not lost:
                    self._tell_link(member_id, peer_id, lost=False)

    def _note(self, who: str, what: str) -> None:
        if self.transcript is not None:
            self.transcript.add(self.now_us, self.event_count, who, what, self._state(who))

    def _state(self, member_id: str) -> str:
        if member_id not in self.members:
            return ""
        raft = self.members[member_id].raft
        if raft is None:
            return "dead"
        return (
            f"{raft.role.value[0]} t{raft.term} of {raft.leader_id or '-'} "
            f"end {raft.ledger_end_index}/t{raft.ledger_end_term} durable {raft.durable_index} "
            f"committed {raft.committed_index}"
        )
