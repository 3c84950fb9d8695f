"""Rolled-back disks: the copies, and the conditions for a rollback.

A member detects a rolled-back disk by its peers' marks. A rollback is therefore allowed only if the
peers that know what the copy lacks have stayed up since. They stay up until the member has asked
them and saved the result.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import Final

from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import Message, PushResponse
from dledger_sim.faults.reshaping import may_lose_volume
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Copy, SimDisk
from dledger_sim.group.kernel_disk import KernelDisk
from dledger_sim.group.member import SimMember
from dledger_sim.judges.checker import Checker

STRIKES = frozenset(
    {"older_disk", "lost_vote", "term_told_first", "leader_goes_back", "power_loss", "power_losses"}
)
"""Strikes that roll disks back."""
NOTHING: Final = (-1, -1, 0, "")
"""The confirmation of a member that has confirmed nothing."""


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
        self._confirmed: dict[str, tuple[int, int, int, str]] = {}
        """For each member, term, index and digest of the highest confirmation to a leader, and that
        leader.
        """
        self._departures: dict[str, int] = {}
        """For each member, how often it had been outside of the group at its last confirmation."""
        self._rolled_back: set[str] = set()
        """The members with rolled-back disks, until they have noticed and saved that."""

    def copy(self, member_id: str) -> None:
        """Copy a member's disk."""
        lives = {peer.member_id: peer.life for peer in self._members.values()}
        self._copies[member_id] = self._disks[member_id].copy(), lives

    def heard(self, message: Message) -> None:
        """Note a confirmation that a leader has received."""
        leader, term = self._members[message.receiver], message.term
        if not isinstance(message, PushResponse) or leader.raft is None:
            return
        if message.sender in self._checker.promises.outside:
            return  # its removal is committed, but the leader still pushes to it for a while
        if self._checker.reigns(message.receiver, term):
            index = leader.raft.match_indexes().get(message.sender, -1)
            chain = self._disks[message.receiver].cached[index].chain if index >= 0 else 0
            told = (term, index, chain, message.receiver)
            self._forget_departed(message.sender)
            self._confirmed[message.sender] = max(self._confirmed.get(message.sender, told), told)

    def may_come_back(self, member_id: str, *, log_alone: bool) -> bool:
        """Return whether other members know everything that a member's copy lacks.

        A log that is rolled back alone must also have been confirmed completely in the disk's term.
        """
        copy, lives = self._copies.get(member_id, (None, {}))
        disk = self._disks[member_id]
        return (
            copy is not None
            and self._members[member_id].raft is not None
            and not self._members[member_id].saving
            and may_lose_volume(self._members, self._first, member_id)
            and not copy.hard_state.joining
            and not disk.hard_state.joining
            and not self._some_need_others()
            and not self._was_led_elsewhere(member_id)
            and (not log_alone or self._has_confirmed_all(member_id))
            and self._checker.knows_reign(member_id, copy.hard_state.term)
            and all(
                peer.raft is not None and peer.life == lives[peer.member_id]
                for peer in self._members.values()
                if peer.member_id != member_id
            )
        )

    def bring_back(self, member_id: str, *, log_alone: bool) -> None:
        """Roll the disk of a crashed member back to its copy."""
        self._roll_back(member_id, log_alone=log_alone)
        self._checker.promises.restored_volume(member_id)

    def may_lose_power(self, member_ids: Sequence[str]) -> bool:
        """Return whether the other members know everything that these hosts would lose at once.

        The hosts' last flush is the copy of their disks. If there are several, each must have
        confirmed its whole log to a leader of its term that keeps its power and its place among the
        voters. A host that may have committed entries alone does not lose its power.
        """
        survivors = self._members.keys() - set(member_ids)
        return not self._some_need_others() and all(
            member_id in self._copies
            and self._may_lose_power(member_id, survivors)
            and not self._commits_alone(member_id)
            and (len(member_ids) == 1 or self._has_confirmed_all(member_id, survivors))
            for member_id in member_ids
        )

    def lose_power(self, member_id: str) -> None:
        """Take from a crashed member's disk what it has not flushed; term and vote stay.

        Under SyncFlush that is what it has not confirmed. A truncation is durable at once
        (`LogStore.truncate`), so entries that were truncated since the copy do not come back.
        """
        disk = self._disks[member_id]
        copy, lives = self._copies[member_id]
        if isinstance(disk, KernelDisk) and disk.in_sync:
            flushed = disk.durable[: disk.flushed_count]
            copy = copy._replace(durable=flushed, checkpoint=disk.checkpoint)
        else:
            pairs = zip(copy.durable, disk.durable, strict=False)
            kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if kept > copy.begin_index or disk.begin_index == 0:  # otherwise it was replaced
                copy = copy._replace(durable=copy.durable[:kept])
        self._copies[member_id] = copy, lives
        self._roll_back(member_id, log_alone=True)
        self._checker.promises.lost_power(member_id)

    def need(self, member_id: str) -> bool:
        """Return whether a member must stay up because one with a rolled-back disk must ask it."""
        return member_id not in self._rolled_back and self._some_need_others()

    def _may_lose_power(self, member_id: str, survivors: AbstractSet[str]) -> bool:
        copy, lives = self._copies[member_id]
        disk = self._disks[member_id]
        return (
            self._members[member_id].raft is not None
            and not self._members[member_id].saving
            and not copy.hard_state.joining
            and not disk.hard_state.joining
            and not self._was_led_elsewhere(member_id)
            and all(
                self._members[one].raft is not None and self._members[one].life == lives[one]
                for one in survivors
            )
        )

    def _commits_alone(self, member_id: str) -> bool:
        """Return whether a member may have committed entries that only its host held."""
        return any(one.voters == (member_id,) for one in self._possible(member_id))

    def _is_voter(self, member_id: str) -> bool:
        return any(member_id in one.voters for one in self._possible(member_id))

    def _possible(self, member_id: str) -> tuple[Membership, ...]:
        """Return the memberships that may be in effect, as a running member knows."""
        raft = self._members[member_id].raft
        assert raft is not None
        return raft.memberships.possible(raft.committed_index)

    def _was_led_elsewhere(self, member_id: str) -> bool:
        """Return whether a later leader replaced what the member confirmed last."""
        _, index, chain, _ = self._confirmed.get(member_id, NOTHING)
        log = self._disks[member_id].durable
        return index >= 0 and (index >= len(log) or log[index].chain != chain)

    def _has_confirmed_all(self, member_id: str, leaders: Collection[str] = ()) -> bool:
        """Return whether a leader of the disk's term, one of these if any are given, knows the
        whole log.
        """
        term, index, _, leader_id = self._confirmed.get(member_id, NOTHING)
        disk = self._disks[member_id]
        known = (term, index + 1) == (disk.hard_state.term, len(disk.durable))
        return known and (not leaders or (leader_id in leaders and self._is_voter(leader_id)))

    def _roll_back(self, member_id: str, *, log_alone: bool) -> None:
        copy, _ = self._copies.pop(member_id)
        self._forget_departed(member_id)
        _, index, _, _ = self._confirmed.pop(member_id, NOTHING)
        self._disks[member_id].restore(copy, index + 1, log_alone=log_alone)
        self._rolled_back.add(member_id)

    def _forget_departed(self, member_id: str) -> None:
        """Forget what a member confirmed before it left the group for a time."""
        departures = self._checker.promises.departures[member_id]
        if departures != self._departures.get(member_id, 0):
            self._departures[member_id] = departures
            self._confirmed.pop(member_id, None)

    def _some_need_others(self) -> bool:
        self._rolled_back = {one for one in self._rolled_back if self._needs_others(one)}
        return bool(self._rolled_back)

    def _needs_others(self, member_id: str) -> bool:
        """Return whether a member has not noticed, or not saved, what its disk lacks."""
        raft, saved = self._members[member_id].raft, self._disks[member_id].hard_state
        return (
            raft is None
            or raft.recalling
            or bool(raft.joining and not saved.joining)
            or bool(raft.lacks_promised and saved.promised_end is None)
        )
