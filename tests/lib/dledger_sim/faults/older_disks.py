"""Rolled-back disks: the copies, and the conditions for a rollback.

A member detects a rolled-back disk by its peers' marks. A rollback is therefore allowed only if the
peers that know what the copy lacks have stayed up since. They stay up until the member has asked
them and saved the result.
"""

from collections.abc import Mapping

from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message, PushResponse
from dledger_sim.faults.reshaping import may_lose_volume
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Copy, SimDisk
from dledger_sim.group.member import SimMember
from dledger_sim.judges.checker import Checker

STRIKES = frozenset(
    {"older_disk", "lost_vote", "term_told_first", "leader_goes_back", "power_loss"}
)
"""Strikes that roll disks back."""


class OlderDisks:
    """The copies of disks in one run, and the confirmations that leaders rely on."""

    def __init__(
        self,
        conditions: Conditions,
        members: Mapping[str, SimMember],
        disks: Mapping[str, SimDisk],
        checker: Checker,
    ) -> None:
        self.watch = not STRIKES.isdisjoint(conditions.faults)
        """Whether the conditions allow rollbacks."""
        self._first = Membership(conditions.voter_ids)
        self._members = members
        self._disks = disks
        self._checker = checker
        self._copies: dict[str, tuple[Copy, dict[str, int]]] = {}
        """Copies of disks, each with the incarnation of every member at that time."""
        self._confirmed: dict[str, tuple[int, int, int]] = {}
        """For each member, term, index and digest of the highest confirmation to a leader."""
        self._last_id = ""
        """The member with the last rolled-back disk, until it has noticed and saved that."""

    def copy(self, member_id: str) -> None:
        """Copy a member's disk."""
        lives = {peer.member_id: peer.life for peer in self._members.values()}
        self._copies[member_id] = self._disks[member_id].copy(), lives

    def heard(self, message: Message) -> None:
        """Note a confirmation that a leader has received."""
        leader, term = self._members[message.receiver], message.term
        if not isinstance(message, PushResponse) or leader.raft is None:
            return
        if self._checker.reigns(message.receiver, term):
            index = leader.raft.match_indexes().get(message.sender, -1)
            chain = self._disks[message.receiver].cached[index].chain if index >= 0 else 0
            told = (term, index, chain)
            self._confirmed[message.sender] = max(self._confirmed.get(message.sender, told), told)

    def may_come_back(self, member_id: str, *, log_alone: bool) -> bool:
        """Return whether other members know everything that a member's copy lacks.

        A log that is rolled back alone must also have been confirmed completely in the disk's term.
        """
        copy, lives = self._copies.get(member_id, (None, {}))
        disk = self._disks[member_id]
        term, index, chain = self._confirmed.get(member_id, (-1, -1, 0))
        led_elsewhere = index >= 0 and (
            index >= len(disk.durable) or disk.durable[index].chain != chain
        )
        whole = (term, index + 1) == (disk.hard_state.term, len(disk.durable))
        return (
            copy is not None
            and self._members[member_id].raft is not None
            and not self._members[member_id].saving
            and may_lose_volume(self._members, self._first, member_id)
            and not copy.hard_state.joining
            and not disk.hard_state.joining
            and not self._last_needs_others()
            and not led_elsewhere
            and (whole or not log_alone)
            and self._checker.knows_reign(member_id, copy.hard_state.term)
            and all(
                peer.raft is not None and peer.life == lives[peer.member_id]
                for peer in self._members.values()
                if peer.member_id != member_id
            )
        )

    def bring_back(self, member_id: str, *, log_alone: bool) -> None:
        """Roll the disk of a crashed member back to its copy."""
        copy, _ = self._copies.pop(member_id)
        _, index, _ = self._confirmed.pop(member_id, (-1, -1, 0))
        self._disks[member_id].restore(copy, index + 1, log_alone=log_alone)
        self._checker.promises.restored_volume(member_id)
        self._last_id = member_id

    def need(self, member_id: str) -> bool:
        """Return whether a member must stay up because one with a rolled-back disk must ask it."""
        return member_id != self._last_id and self._last_needs_others()

    def _last_needs_others(self) -> bool:
        if self._last_id:
            raft = self._members[self._last_id].raft
            if raft is None or raft.recalling:
                return True
            if raft.joining and not self._disks[self._last_id].hard_state.joining:
                return True
            self._last_id = ""
        return False
