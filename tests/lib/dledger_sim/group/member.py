"""One member: a production core and loop, with a simulated disk, links and clients.

Real members run the same loop, `dledger_node.shell.loop.CoreLoop`, and their requests wait in the
same `dledger_node.services.waiting.CommitWaiters`. This module replaces the services around
them.
"""

from collections.abc import Iterable
from typing import Final

from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.proposals import Proposal, Refusal
from dledger_node.raft.ready import ReadState
from dledger_node.remoting.read_index_messages import ReadIndexRequest
from dledger_node.services.waiting import CommitWaiters, Waiter
from dledger_node.shell.loop import CoreLoop
from dledger_sim.group.conditions import CLOCK_DRIFT_MAX, TICK_US, Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.follower_reads import FollowerReads
from dledger_sim.group.keeper import SimKeeper
from dledger_sim.group.links import SimLinks
from dledger_sim.group.store import DiedError, SimStore
from dledger_sim.group.world import World
from dledger_sim.judges.history import Answer, Operation

WAITING_ENTRIES_MAX: Final = 100
"""Limit of entries that wait for a quorum; a real member refuses more appends too."""
WAITING_READS_MAX: Final = 10_000


class SimMember:
    """One member; `raft` is None while it is down."""

    store_kind, keeper_kind = SimStore, SimKeeper

    def __init__(self, member_id: str, conditions: Conditions, disk: SimDisk, world: World) -> None:
        self.member_id = member_id
        self.disk = disk
        self.raft: Raft | None = None
        self.life = 0
        """Number of the current incarnation; events planned by an earlier one are dropped."""
        self.paused_until_us = 0
        self._counted_us = 0
        """The time up to which `elapsed_ticks` has counted."""
        self.committed_index = -1
        """The committed index reported to clients since the start."""
        self.failure: Exception | None = None
        """The reason why the loop stopped in the middle of a turn: a crash, or damage."""
        self.conditions = conditions
        self.follower_reads: FollowerReads | None = None
        """Reads on members that do not lead; None while the member is down or refuses them."""
        self.keeper: SimKeeper | None = None
        """The keeper of the state; None while the member is down or has no state."""
        self._world = world
        self._loop: CoreLoop | None = None
        self._store: SimStore | None = None
        self._appends = CommitWaiters[Operation](WAITING_ENTRIES_MAX)
        self._reads: dict[int, Operation] = {}
        """Unanswered linearizable reads by the handle that the core received."""
        self._read_count = 0
        self._released: list[ReadState] = []
        """Reads that the core has released in this turn."""
        self._confirmed = CommitWaiters[Operation](WAITING_READS_MAX)
        """Released reads that wait for the committed index."""
        drift = conditions.clock_drift
        drift = world.choices.number(f"drift {member_id}", -drift, drift, 0)
        assert abs(drift) <= CLOCK_DRIFT_MAX
        self.tick_us = TICK_US * (1000 + drift) // 1000
        self.chance_in_ready = conditions.crash_in_ready > 0.0
        self._site_dies = f"dies in ready {member_id}"
        self._site_keeps = f"keeps {member_id}"
        self._site_saves = f"saves before death {member_id}"
        self._site_checkpoint = f"checkpoint {member_id}"
        self._site_election = f"election ticks {member_id}"

    @property
    def loop(self) -> CoreLoop:
        """Return the loop of a running member."""
        assert self._loop is not None
        return self._loop

    @property
    def saving(self) -> bool:
        """Return whether a save of the hard state, or a change of the log, is in progress."""
        return self._store is not None and self._store.is_busy

    @property
    def changing(self) -> bool:
        """Return whether a truncation or a replacement of the log is in progress."""
        return self._store is not None and self._store.changing is not None

    @property
    def leads(self) -> bool:
        """Return whether this member considers itself the leader."""
        return self.raft is not None and self.raft.role is Role.LEADER

    @property
    def owes_answers(self) -> bool:
        """Return whether a client waits for an answer of this member."""
        waiting = self.follower_reads is not None and self.follower_reads.waiting_count
        return bool(self._appends.count or self._reads or self._confirmed.count or waiting)

    def elapsed_ticks(self, now_us: int) -> int:
        """Return how many ticks of time have passed since the last call, as `TickClock` does."""
        ticks = (now_us - self._counted_us) // self.tick_us
        self._counted_us += ticks * self.tick_us
        return ticks

    def start(self) -> None:
        """Start the member from its disk."""
        conditions = self.conditions
        self._counted_us = self._world.now_us
        self.committed_index = self.disk.open()
        self._world.checker.started(self.member_id, self.committed_index)
        in_sync = self._world.choices.chance(f"sync {self.member_id}", conditions.flush_switches)
        async_flush = self.disk.starts(in_sync=in_sync)
        self.raft = Raft(
            conditions.raft_config(self.member_id, async_flush=async_flush),
            self.disk.hard_state,
            self.disk.log_terms(),
            committed_index=self.committed_index,
            incarnation=self.life,
            randint=self._randint,
            memberships=self.disk.log_memberships(Membership(conditions.voter_ids)),
        )
        self.failure = None
        self._store = self.store_kind(
            self.member_id,
            self.disk,
            self._world,
            committed_index=self._core_committed_index,
            perhaps_die=self._perhaps_die,
        )
        self._loop = CoreLoop(
            self.raft,
            self._store,
            SimLinks(self.member_id, self.disk, self._world, perhaps_die=self._perhaps_die),
            confirm_unflushed=async_flush,
            release_reads=self._released.extend,
            fail=self._end,
        )
        self._loop.listen([self])
        if conditions.follower_reads:
            self.follower_reads = FollowerReads(self._world, self.raft, self._loop, self.life)
        if conditions.snapshot_entries:
            self.keeper = self.keeper_kind(self.member_id, conditions, self.disk, self._world)
            raft = self.raft
            self.keeper.reported_commit = lambda: raft.reported_commit
            self.keeper.settle(self.committed_index)

    def die(self) -> None:
        """Crash the member; its disk keeps what the conditions allow."""
        choices = self._world.choices
        if self._store is not None and self._store.saving is not None:
            if choices.chance(self._site_saves, 0.5):
                self._store.finish_save()
            self._store.saving = None
        if self.keeper is not None:
            self.keeper.die()
            self.keeper = None
        self.life += 1
        self.hang_up()
        self.raft = self._loop = self._store = self.follower_reads = None
        self.disk.crash(self.conditions.keep, choices.seed(self._site_keeps))
        self._world.checker.died(self.member_id)

    def lose_volume(self, kept_rate: float | None) -> None:
        """Empty or damage the disk of a crashed member."""
        self.disk.lose(kept_rate)
        self._world.checker.promises.lost_volume(self.member_id)

    def remove_front(self, rate: float) -> bool:
        """Remove entries from the front, as forced retention does, even if peers lack them."""
        disk = self.disk
        if self.raft is None or self.saving:
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
        """Handle an append of a client."""
        assert self.raft is not None
        bodies = operation.bodies
        no_room = self.disk.full or self.raft.lacks_room
        if no_room or self._appends.count + len(bodies) > WAITING_ENTRIES_MAX:
            operation.answer(Answer.REFUSED, self._world.now_us)
            return
        proposal = self.raft.propose(len(bodies), bodies)
        if isinstance(proposal, Proposal):
            self._appends.add(
                Waiter([operation], proposal.last_index, proposal.term, entry_count=len(bodies))
            )
        else:
            operation.answer(Answer.REFUSED, self._world.now_us)

    def read(self, operation: Operation) -> None:
        """Handle a read of one entry, if this member is the master or serves reads anyway."""
        assert self.raft is not None
        index, now_us = operation.index, self._world.now_us
        serves = self.raft.master or self.follower_reads is not None
        if not serves or not self.disk.begin_index <= index <= self.committed_index:
            operation.answer(Answer.REFUSED, now_us)
            return
        try:
            (entry,) = self.disk.read(index, index + 1)
        except StoreDamagedError:
            operation.answer(Answer.REFUSED, now_us)  # the member leaves at its next tick
            return
        self._world.checker.rot.serves(self.member_id, index, [entry])
        operation.bodies = (entry.body,)
        operation.answer(Answer.DONE, now_us)

    def read_index(self, operation: Operation) -> None:
        """Handle a linearizable read, whose answer is the index up to which it sees the log."""
        assert self.raft is not None
        if self.follower_reads is not None and not self.leads:
            self.follower_reads.read(operation)
            return
        self._read_count += 1
        if isinstance(self.raft.read_index(self._read_count), Refusal):
            operation.answer(Answer.REFUSED, self._world.now_us)
        else:
            self._reads[self._read_count] = operation

    def on_turn(self, committed_index: int) -> None:
        """Answer waiting requests. The loop calls this at the end of a turn that did work."""
        raft = self.raft
        assert raft is not None
        leading_term = raft.term if raft.role is Role.LEADER else None
        committed, unknown = self._appends.release(committed_index, leading_term)
        self._answer(unknown, Answer.UNKNOWN)
        if committed_index != self.committed_index:
            self._commit(committed_index)
        for waiter in committed:
            (operation,) = waiter.replies
            operation.index = waiter.first_index
            operation.answer(Answer.DONE, self._world.now_us)
            self._world.checker.acknowledged(waiter.first_index, operation.bodies)
        self._answer_reads(committed_index, leading_term)
        if self.follower_reads is not None:
            self.follower_reads.on_turn(committed_index)
        if leading_term is not None:
            self._world.checker.leads(self.member_id, leading_term)

    def judge(self) -> None:
        """Let the checker compare the core with the disk."""
        raft, checker = self.raft, self._world.checker
        assert raft is not None
        checker.worked(self.member_id, raft.durable_index, raft.ledger_end_index)
        checker.memberships.knows(self.member_id, raft.membership)

    def hard_state_saved(self) -> None:
        """Finish a save of the hard state, or a change of the log, and continue the work."""
        assert self._store is not None
        self._store.finish(self.loop)

    def _end(self, error: Exception) -> None:
        """Note why the loop stopped. Raises any error other than a crash or found damage."""
        if not isinstance(error, DiedError | StoreDamagedError):
            raise error
        self.failure = error

    def _core_committed_index(self) -> int:
        assert self.raft is not None
        return self.raft.committed_index

    def _randint(self, low: int, high: int) -> int:
        return self._world.choices.election_ticks(self._site_election, low, high)

    def _perhaps_die(self) -> None:
        rate = self.conditions.crash_in_ready
        if self.chance_in_ready and self._world.choices.chance(self._site_dies, rate):
            raise DiedError

    def give_up(self) -> None:
        """Answer waiting appends as unknown: another leader may still store them."""
        self._answer(self._appends.take_all(), Answer.UNKNOWN)

    def hang_up(self) -> None:
        """Answer all requests as unknown: clients see a closed connection."""
        self.give_up()
        for operation in self._reads.values():
            operation.answer(Answer.UNKNOWN, self._world.now_us)
        self._answer(self._confirmed.take_all(), Answer.UNKNOWN)
        if self.follower_reads is not None:
            self.follower_reads.give_up()
        self._reads.clear()
        self._released.clear()

    def _answer(self, waiters: Iterable[Waiter[Operation]], answer: Answer) -> None:
        for waiter in waiters:
            for operation in waiter.replies:
                operation.answer(answer, self._world.now_us)

    def _answer_reads(self, committed_index: int, leading_term: int | None) -> None:
        """Answer the released reads whose index is committed here.

        A member that no longer leads refuses them: their index may never be committed.
        """
        assert self.raft is not None
        for state in self._released:
            if isinstance(state.handle, ReadIndexRequest):
                assert self.follower_reads is not None
                self.follower_reads.proved(state.handle, state.index)
                continue
            assert isinstance(state.handle, int)
            operation = self._reads.pop(state.handle)
            if state.index is None:
                operation.answer(Answer.REFUSED, self._world.now_us)
            else:
                self._confirmed.add(Waiter([operation], state.index, self.raft.term))
        self._released.clear()
        committed, refused = self._confirmed.release(committed_index, leading_term)
        self._answer(refused, Answer.REFUSED)
        for waiter in committed:
            waiter.replies[0].index = committed_index
        self._answer(committed, Answer.DONE)

    def _commit(self, committed_index: int) -> None:
        self._world.checker.told(self.member_id, committed_index)
        self.committed_index = committed_index
        if self.keeper is not None:
            self.keeper.settle(committed_index)
        if self._world.choices.chance(self._site_checkpoint, self.conditions.checkpoint):
            assert self.raft is not None
            self.disk.save_checkpoint(min(committed_index, self.raft.durable_index))
