"""Rotten log entries and their members: a stand-in for the node's lifecycle and healer.

A member that finds a rotten entry leaves the group at once. It reads its log again with full
verification and asks the other members. The node's own `healing.decision` then decides.
"""

from collections.abc import Callable, Mapping
from typing import Final

from dledger_node.errors import StoreDamagedError
from dledger_node.healing.repair_plan import (
    SET_ASIDE_MAX,
    DamagedMember,
    PeerReport,
    RepairAction,
    plan_repair,
)
from dledger_node.raft.membership import Membership
from dledger_sim.faults.mending import Mending, MendOutcome
from dledger_sim.faults.reshaping import may_lose_volume
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.events import Events
from dledger_sim.group.member import DiedError, SimMember
from dledger_sim.group.network import SimNetwork
from dledger_sim.group.rotting_disk import RottingDisk
from dledger_sim.judges.checker import Checker

LOOK_US: Final = 50_000
"""Time for which a member stays out before it opens its store again."""


class Rotting:
    """The rot of one run, within the number of disks that the group can lose."""

    def __init__(
        self,
        conditions: Conditions,
        members: Mapping[str, SimMember],
        network: SimNetwork,
        checker: Checker,
        events: Events,
        start: Callable[[str], None],
        note: Callable[[str, str], None],
    ) -> None:
        """`start` starts a member, which calls `opens`; `note` adds a line to the transcript."""
        self._first = Membership(conditions.voter_ids)
        self._members = members
        self._network = network
        self._checker = checker
        self._events = events
        self._start = start
        self._note = note
        self._mending: Mending | None = None
        if conditions.mends:
            self._mending = Mending(members, network, checker.rot, events)
        self._look_us = dict.fromkeys(members, 0)
        """For each member that stays out, the time of its next check."""

    def may_lose(self, member_id: str) -> bool:
        """Return whether the group can lose a member's disk."""
        return may_lose_volume(self._members, self._first, member_id)

    def may_rot(self, member_id: str) -> bool:
        """Return whether a member's log has entries whose rot a store can detect, and may rot."""
        disk = self._members[member_id].disk
        return (
            isinstance(disk, RottingDisk)
            and disk.begin_index <= disk.checkpoint_end
            and disk.set_aside_count < SET_ASIDE_MAX
            and (self._mending is not None or self.may_lose(member_id))
        )

    def rot(self, member_id: str, index: int, count: int) -> None:
        """Let `count` entries rot from `index` on, or from the nearest entry that may rot."""
        disk = self._members[member_id].disk
        assert isinstance(disk, RottingDisk)
        first_index = max(disk.begin_index, min(index, disk.checkpoint_end))
        end = min(first_index + count, disk.checkpoint_end + 1)
        mending = self._mending
        indexes = [
            at
            for at in range(first_index, end)
            if mending is None or mending.may_rot(member_id, at)
        ]
        for at in indexes:
            disk.rot(at, at + 1)
        self._note(member_id, f"has rotten entries {indexes}")
        self._checker.rot.counts["rotted"] += bool(indexes)
        self._checker.rot.counts["rotted_entries"] += len(indexes)

    def found(self, member: SimMember, error: Exception, how: str) -> str:
        """Count how damage was found, and describe what the member does.

        Raises the error if no fault explains it.
        """
        if not member.disk.damaged:
            if isinstance(error, StoreDamagedError) and not member.disk.rotted:
                raise error
            return "crashes"
        if isinstance(error, DiedError):
            how = "read"  # the member crashed at its next tick, or before
        self._checker.rot.counts[f"found_by_{how}"] += 1
        return f"leaves: {error}"

    def opens(self, member: SimMember) -> bool:
        """Start a member if its store is in order; otherwise plan the next check."""
        disk = member.disk
        if isinstance(disk, RottingDisk) and (disk.rotten or disk.damaged):
            if self._events.now_us < self._look_us[member.member_id]:
                return False  # the next check is planned
            if not self._is_in_order(member.member_id, disk):
                self._note(member.member_id, "is damaged, and stays out")
                self._look_us[member.member_id] = self._events.now_us + LOOK_US
                self._events.after(LOOK_US, self._start, member.member_id)
                return False
        try:
            member.start()
        except StoreDamagedError:
            if not disk.rotted:
                raise
            member.lose_volume(None)  # as the error asks the administrator to do
            member.start()
        return True

    def _is_in_order(self, member_id: str, disk: RottingDisk) -> bool:
        """Check a store at a start. If damage was found before, apply the remedy."""
        if not disk.damaged:
            disk.damaged = max(disk.rotten) >= disk.verified_from
            self._checker.rot.counts["found_by_start"] += disk.damaged
            return not disk.damaged
        if self._mending is not None and disk.rotten:
            outcome = self._mending.mend(member_id)
            self._note(member_id, f"mends its log: {outcome.value}; rotten {sorted(disk.rotten)}")
            self._checker.rot.counts[f"mending_{outcome.value}"] += 1
            if outcome is MendOutcome.LATER:
                return False
        member = DamagedMember(
            self_id=member_id,
            peer_ids=tuple(one for one in self._members if one != member_id),
            log_is_sound=not disk.rotten,
            log_is_empty=False,
            index_is_sound=True,
            hard_state=disk.hard_state,
            set_aside_count=disk.set_aside_count,
        )
        match plan_repair(member, self._reports(member_id)).action:
            case RepairAction.JOIN:
                if self._mending is not None:
                    self._mending.sets_aside(member_id)
                disk.set_aside()
                self._note(member_id, f"sets aside all entries after {len(disk.durable) - 1}")
                self._checker.promises.lost_volume(member_id)
                self._checker.rot.counts["set_aside"] += 1
                return True
            case RepairAction.REOPEN:
                disk.damaged = False
                return True
            case _:
                self._checker.rot.counts["stayed_out"] += 1
                return False

    def _reports(self, member_id: str) -> dict[str, PeerReport]:
        """Return the answers of the reachable peers to a member that stays out."""
        links, reports = self._network.links, {}
        for peer_id, peer in self._members.items():
            if peer_id == member_id or peer.raft is None:
                continue
            cut = links[member_id][peer_id].cut or links[peer_id][member_id].cut
            if not cut and self._events.now_us >= peer.paused_until_us:
                raft = peer.raft
                reports[peer_id] = PeerReport(
                    leader_id=raft.leader_id,
                    term=raft.term,
                    joining=bool(raft.joining),
                    voters=raft.membership.voters,
                )
        return reports
