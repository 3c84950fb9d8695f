"""Disks that come back as they were: kept copies, and when one may take a disk's place.

A member finds out that its disk is older by what its peers remember. So a copy comes back only
where what it lacks is known to those who live on since, and these live until they were asked, and
what they told is saved.
"""

from collections.abc import Mapping

from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message, PushResponse
from dledger_sim.faults.reshaping import may_lose_volume
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Copy, SimDisk
from dledger_sim.group.member import SimMember
from dledger_sim.judges.checker import Checker

STRIKES = frozenset({"older_disk", "lost_vote", "term_told_first", "leader_goes_back"})
"""Those that bring disks back."""


class OlderDisks:
    """The copies of one run, and what leaders count on that the disks hold."""

    def __init__(
        self,
        conditions: Conditions,
        members: Mapping[str, SimMember],
        disks: Mapping[str, SimDisk],
        checker: Checker,
    ) -> None:
        self.watch = not STRIKES.isdisjoint(conditions.faults)
        """Whether there will be any."""
        self._first = Membership(conditions.voter_ids)
        self._members = members
        self._disks = disks
        self._checker = checker
        self._copies: dict[str, tuple[Copy, dict[str, int]]] = {}
        """Disks as they were, and in which life each member was then."""
        self._confirmed: dict[str, tuple[int, int, int]] = {}
        """Of each member, what a leader counts on: its term, the index, and the digest there."""
        self._last_id = ""
        """Who got an older disk last, until it knows and has saved what that means."""

    def copy(self, member_id: str) -> None:
        """Keep what a member's disk holds now."""
        lives = {peer.member_id: peer.life for peer in self._members.values()}
        self._copies[member_id] = self._disks[member_id].copy(), lives

    def heard(self, message: Message) -> None:
        """Note what a leader counts on, now that it has heard a confirmation."""
        leader, term = self._members[message.receiver], message.term
        if not isinstance(message, PushResponse) or leader.raft is None:
            return
        if self._checker.reigns(message.receiver, term):
            index = leader.raft.match_indexes().get(message.sender, -1)
            chain = self._disks[message.receiver].cached[index].chain if index >= 0 else 0
            told = (term, index, chain)
            self._confirmed[message.sender] = max(self._confirmed.get(message.sender, told), told)

    def may_come_back(self, member_id: str, *, log_alone: bool) -> bool:
        """Whether others know all that a member's copy lacks; of a log that comes back without its
        term, only if all of the disk was confirmed in that term.
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
        """Put the copy in the place of a dead member's disk."""
        copy, _ = self._copies.pop(member_id)
        _, index, _ = self._confirmed.pop(member_id, (-1, -1, 0))
        self._disks[member_id].restore(copy, index + 1, log_alone=log_alone)
        self._checker.promises.restored_volume(member_id)
        self._last_id = member_id

    def need(self, member_id: str) -> bool:
        """Whether a member must live, since one with an older disk has yet to ask it."""
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
