"""One member: a core and the shell that drives it, over a simulated disk.

The shell does what any shell must: a Ready in its order, one flush at a time, and acknowledgements
only while it still leads the proposal's term.
"""

from collections import deque
from typing import Final, NamedTuple

from dledger_node.errors import StoreDamagedError
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.messages import (
    AppendRequest,
    InstallSnapshotRequest,
    Message,
    PreVoteRequest,
    TakeLeadershipRequest,
)
from dledger_node.raft.proposals import Proposal, Refusal
from dledger_node.raft.ready import (
    ReadState,
    Ready,
    Truncate,
    Write,
    WriteMembership,
    WriteNoop,
    WriteProposal,
    WritePushed,
    WriteSnapshot,
)
from dledger_sim.group.conditions import CLOCK_DRIFT_MAX, TICK_US, Conditions
from dledger_sim.group.disk import SimDisk, chained
from dledger_sim.group.keeper import SimKeeper
from dledger_sim.group.membership_bodies import body_of
from dledger_sim.group.moments import Moment
from dledger_sim.group.pushed import PushedEntries, filled
from dledger_sim.group.world import World
from dledger_sim.judges.history import Answer, Operation

PROPOSALS_WAITING_MAX = 50
"""More are refused, as any shell does that wants to live."""

SENDING_MOMENTS: Final[dict[type[Message], Moment]] = {
    AppendRequest: Moment.APPEND_SENT,
    PreVoteRequest: Moment.STANDS,
    TakeLeadershipRequest: Moment.HANDS_OVER,
}


class DiedError(Exception):
    """The member died in the middle of a Ready."""


class Waiting(NamedTuple):
    """An append that waits for its quorum."""

    proposal: Proposal
    operation: Operation


class SimMember:
    """One member's present life; `raft` is None while it is dead."""

    def __init__(self, member_id: str, conditions: Conditions, disk: SimDisk, world: World) -> None:
        self.member_id = member_id
        self.disk = disk
        self.raft: Raft | None = None
        self.life = 0
        """Counts lives, so that what an earlier one had planned is not done."""
        self.paused_until_us = 0
        self.committed_index = -1
        """As told to clients in this life."""
        self.saving: Ready | None = None
        """A Ready whose hard state is on its way to the disk."""
        self.conditions = conditions
        self.keeper: SimKeeper | None = None
        """What keeps a state, in a life in which there is one to keep."""
        self._world = world
        self._waiting: deque[Waiting] = deque()
        self._reads: dict[int, Operation] = {}
        """Linearizable reads that are not answered, by the number that the core was given."""
        self._read_count = 0
        self._confirmed: list[tuple[int, Operation]] = []
        """Those that wait for the committed index to reach theirs."""
        drift = conditions.clock_drift
        drift = world.choices.number(f"drift {member_id}", -drift, drift, 0)
        assert abs(drift) <= CLOCK_DRIFT_MAX
        self.tick_us = TICK_US * (1000 + drift) // 1000
        self.chance_in_ready = conditions.crash_in_ready > 0.0
        self._site_dies = f"dies in ready {member_id}"
        self._site_keeps = f"keeps {member_id}"
        self._site_saves = f"saves before death {member_id}"
        self._site_slow = f"slow hard state {member_id}"
        self._site_split = f"split push {member_id}"
        self._site_checkpoint = f"checkpoint {member_id}"
        self._site_election = f"election ticks {member_id}"

    @property
    def leads(self) -> bool:
        """Whether this member believes that it leads."""
        return self.raft is not None and self.raft.role is Role.LEADER

    @property
    def owes_answers(self) -> bool:
        """Whether a client waits for this member."""
        return bool(self._waiting or self._reads or self._confirmed)

    def start(self) -> None:
        """Begin a life with what the disk holds."""
        conditions = self.conditions
        self.committed_index = self.disk.open()
        self._world.checker.started(self.member_id, self.committed_index)
        self.raft = Raft(
            RaftConfig(
                self_id=self.member_id,
                voters=conditions.voter_ids,
                addable_ids=conditions.member_ids[len(conditions.voter_ids) :],
                heartbeat_ticks=conditions.heartbeat_ticks,
                election_ticks=conditions.election_ticks,
                push_entries_max=conditions.push_entries_max,
                inflight_ranges_max=conditions.inflight_ranges_max,
                lease_ticks=conditions.lease_ticks,
                recall_ticks=conditions.recall_ticks,
                preferred_leader_ids=conditions.preferred_leader_ids,
            ),
            self.disk.hard_state,
            self.disk.log_terms(),
            committed_index=self.committed_index,
            incarnation=self.life,
            randint=self._randint,
            memberships=self.disk.log_memberships(Membership(conditions.voter_ids)),
        )
        if conditions.snapshot_entries:
            self.keeper = SimKeeper(self.member_id, conditions, self.disk, self._world)
            self.keeper.settle(self.committed_index)

    def die(self) -> None:
        """End this life; the disk keeps what the conditions let it keep."""
        choices = self._world.choices
        if self.saving is not None and self.saving.hard_state is not None:
            if choices.chance(self._site_saves, 0.5):
                self._save(self.saving)
            self.saving = None
        if self.keeper is not None:
            self.keeper.die()
            self.keeper = None
        self.raft = None
        self.life += 1
        self.hang_up()
        self.disk.crash(self.conditions.keep, choices.seed(self._site_keeps))
        self._world.checker.died(self.member_id)

    def lose_volume(self, kept_rate: float | None) -> None:
        """Lose, while it is dead, all that its disk held, or part of it."""
        self.disk.lose(kept_rate)
        self._world.checker.lost_volume(self.member_id)

    def remove_front(self, rate: float) -> bool:
        """Remove entries from the front, as retention by force does: whoever may lack them."""
        disk = self.disk
        if self.raft is None or self.saving is not None:
            return False
        last_index = min(self.committed_index, self.raft.durable_index)
        first_index = disk.begin_index + int(rate * (last_index - disk.begin_index))
        if self.keeper is not None:
            first_index = self.keeper.may_begin_at(first_index, last_index)
        if first_index <= disk.begin_index:
            return False
        disk.checkpoint = max(disk.checkpoint, last_index)
        disk.remove_before(first_index)
        self.raft.remove_before(first_index)
        return True

    def propose(self, operation: Operation) -> None:
        """Let a client append."""
        assert self.raft is not None
        bodies = operation.bodies
        if self.disk.full or len(self._waiting) >= PROPOSALS_WAITING_MAX:
            operation.answer(Answer.REFUSED, self._world.now_us)
            return
        proposal = self.raft.propose(len(bodies), bodies)
        if isinstance(proposal, Proposal):
            self._waiting.append(Waiting(proposal, operation))
        else:
            operation.answer(Answer.REFUSED, self._world.now_us)

    def read(self, operation: Operation) -> None:
        """Let a client read one entry, if this member is master."""
        assert self.raft is not None
        index, now_us = operation.index, self._world.now_us
        if not self.raft.master or not self.disk.begin_index <= index <= self.committed_index:
            operation.answer(Answer.REFUSED, now_us)
            return
        try:
            (entry,) = self.disk.read(index, index + 1)
        except StoreDamagedError:
            operation.answer(Answer.REFUSED, now_us)  # and with the next tick it leaves
            return
        self._world.checker.rot.serves(self.member_id, index, [entry])
        operation.bodies = (entry.body,)
        operation.answer(Answer.DONE, now_us)

    def read_index(self, operation: Operation) -> None:
        """Let a client read linearizably: it hears up to where it saw the log."""
        assert self.raft is not None
        self._read_count += 1
        if isinstance(self.raft.read_index(self._read_count), Refusal):
            operation.answer(Answer.REFUSED, self._world.now_us)
        else:
            self._reads[self._read_count] = operation

    def work(self) -> bool:
        """Do all that the core asks for; true when saving the hard state takes a while.

        DiedError when it dies on the way.
        """
        raft = self.raft
        assert raft is not None
        ready = raft.ready()
        if ready is None:
            return False
        while ready is not None:
            if ready.hard_state is not None:
                choices, rate = self._world.choices, self.conditions.slow_hard_state
                if choices.chance(self._site_slow, rate):
                    self.saving = ready
                    return True
                self._save(ready)
            self._do(ready)
            ready = raft.ready()
        self.judge(raft)
        return False

    def judge(self, raft: Raft) -> None:
        """Let the judge compare what the core knows with what is on the disk."""
        checker = self._world.checker
        checker.worked(self.member_id, raft.durable_index, raft.ledger_end_index)
        checker.memberships.knows(self.member_id, raft.membership)

    def hard_state_saved(self) -> None:
        """Go on with the Ready whose hard state has reached the disk."""
        assert self.saving is not None
        ready, self.saving = self.saving, None
        self._save(ready)
        self._do(ready)

    def _randint(self, low: int, high: int) -> int:
        return self._world.choices.election_ticks(self._site_election, low, high)

    def _save(self, ready: Ready) -> None:
        assert ready.hard_state is not None
        self.disk.hard_state = ready.hard_state
        self._world.checker.saved(self.member_id, ready.hard_state)

    def _do(self, ready: Ready) -> None:
        raft = self.raft
        assert raft is not None
        may_die = self.chance_in_ready
        for write in ready.writes:
            if may_die:
                self._perhaps_die()
            self._write(write, ready.committed_index)
        if ready.messages:
            self._world.checker.sending_batch()
            for message in ready.messages:
                if may_die:
                    self._perhaps_die()
                self._tell(message)
        raft.advance(ready)
        leads = raft.role is Role.LEADER
        if self._waiting and (not leads or self._waiting[0].proposal.term != raft.term):
            # Before looking at the committed index: it may cover what replaced them.
            self.give_up()
        if ready.committed_index != self.committed_index:
            self._commit(ready.committed_index)
        if ready.reads or self._confirmed:
            self._answer_reads(ready.reads, leads=leads)
        if leads:
            self._world.checker.leads(self.member_id, raft.term)

    def _perhaps_die(self) -> None:
        rate = self.conditions.crash_in_ready
        if self._world.choices.chance(self._site_dies, rate):
            raise DiedError

    def give_up(self) -> None:
        """Answer what waits as unknown: it may be stored yet, by another leader."""
        while self._waiting:
            self._waiting.popleft().operation.answer(Answer.UNKNOWN, self._world.now_us)

    def hang_up(self) -> None:
        """Let who waits see a closed connection, which tells nothing: this member is dead."""
        self.give_up()
        waiting = [*self._reads.values(), *(operation for _, operation in self._confirmed)]
        for operation in waiting:
            operation.answer(Answer.UNKNOWN, self._world.now_us)
        self._reads.clear()
        self._confirmed.clear()

    def _answer_reads(self, states: tuple[ReadState, ...], *, leads: bool) -> None:
        """Answer the reads that the core has released, once what they see is committed here.

        Who leads no more refuses them: what they wait for may never be committed.
        """
        for state in states:
            assert isinstance(state.handle, int)
            operation = self._reads.pop(state.handle)
            if state.index is None:
                operation.answer(Answer.REFUSED, self._world.now_us)
            else:
                self._confirmed.append((state.index, operation))
        waiting, self._confirmed = self._confirmed, []
        for index, operation in waiting:
            if not leads:
                operation.answer(Answer.REFUSED, self._world.now_us)
            elif index <= self.committed_index:
                operation.index = self.committed_index
                operation.answer(Answer.DONE, self._world.now_us)
            else:
                self._confirmed.append((index, operation))

    def _write(self, write: Write, committed_index: int) -> None:
        match write:
            case WritePushed(entries=pushed):
                assert isinstance(pushed, PushedEntries)
                skipped = write.first_index - pushed.first_index
                count = write.last_index - write.first_index + 1
                self._append(write.first_index, pushed.entries[skipped : skipped + count])
            case WriteSnapshot(first_index=first_index, entries=pushed):
                assert isinstance(pushed, PushedEntries)
                self.disk.replace(self._world.checker.replacing(self.member_id, first_index))
                self._append(first_index, pushed.entries)
            case WriteProposal(first_index=first_index, term=term, entries=bodies):
                assert isinstance(bodies, tuple)
                self._append(first_index, [(term, body) for body in bodies])
            case WriteNoop(index=index, term=term):
                self._append(index, [(term, -term)])
                self._world.moment(Moment.ELECTED, self.member_id)
            case WriteMembership(index=index, term=term, membership=membership):
                rules = self._world.checker.memberships
                rules.changing(self.member_id, membership, term, committed_index)
                self._append(index, [(term, body_of(membership))])
                self._world.moment(Moment.CHANGES, self.member_id)
            case Truncate(first_index=first_index):
                self._world.checker.truncating(self.member_id, first_index)
                self.disk.truncate(first_index)
                self._world.moment(Moment.TRUNCATED, self.member_id)

    def _append(self, first_index: int, entries: list[tuple[int, int]]) -> None:
        cached = self.disk.cached
        assert first_index == len(cached), f"writes at {first_index}, the log has {len(cached)}"
        for term, body in entries:
            entry = chained(cached, term, body)
            self.disk.append(entry)
            self._world.checker.wrote(self.member_id, entry)

    def _tell(self, message: Message) -> None:
        world = self._world
        world.checker.sending(message)
        moment = SENDING_MOMENTS.get(type(message))
        if moment is not None:
            world.moment(moment, self.member_id)
        if isinstance(message, InstallSnapshotRequest):
            message = filled(message, self.disk, world.checker.rot)
        if not isinstance(message, AppendRequest):
            world.send(message)
            return
        choices, rate = world.choices, self.conditions.split_push
        middle = message.last_index
        if message.first_index < middle and choices.chance(self._site_split, rate):
            middle = (message.first_index + message.last_index) // 2
            world.send(filled(message.until(middle), self.disk, world.checker.rot))
            world.send(filled(message.after(middle), self.disk, world.checker.rot))
        else:
            world.send(filled(message, self.disk, world.checker.rot))

    def _commit(self, committed_index: int) -> None:
        world = self._world
        world.checker.told(self.member_id, committed_index)
        self.committed_index = committed_index
        if self.keeper is not None:
            self.keeper.settle(committed_index)
        while self._waiting and self._waiting[0].proposal.last_index <= committed_index:
            proposal, operation = self._waiting.popleft()
            operation.index = proposal.first_index
            operation.answer(Answer.DONE, world.now_us)
            world.checker.acknowledged(proposal.first_index, operation.bodies)
        if world.choices.chance(self._site_checkpoint, self.conditions.checkpoint):
            assert self.raft is not None
            self.disk.save_checkpoint(min(committed_index, self.raft.durable_index))
