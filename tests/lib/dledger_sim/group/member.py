"""One member: a core, the production loop that drives it, and a simulated disk and network.

The loop, `dledger_node.shell.loop.CoreLoop`, is the one that real members run. Here are its
surroundings: requests of clients, and acknowledgements only while the member still leads the term
of the proposal.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from dledger_node.errors import StoreDamagedError
from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Raft
from dledger_node.raft.member_state import Role
from dledger_node.raft.membership import Membership
from dledger_node.raft.proposals import Proposal, Refusal
from dledger_node.raft.ready import ReadState
from dledger_node.shell.loop import CoreLoop
from dledger_sim.group.conditions import CLOCK_DRIFT_MAX, TICK_US, Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.keeper import SimKeeper
from dledger_sim.group.links import SimLinks
from dledger_sim.group.store import SimStore
from dledger_sim.group.world import World
from dledger_sim.judges.history import Answer, Operation

PROPOSALS_WAITING_MAX: Final = 50
"""More are refused, as a real member does."""


class DiedError(Exception):
    """The member died in the middle of a turn."""


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
        self.failure: Exception | None = None
        """What ended this life in the middle of a turn: its death, or damage that it found."""
        self.conditions = conditions
        self.keeper: SimKeeper | None = None
        """What keeps a state, in a life in which there is one to keep."""
        self._world = world
        self._loop: CoreLoop | None = None
        self._store: SimStore | None = None
        self._waiting: deque[Waiting] = deque()
        self._reads: dict[int, Operation] = {}
        """Linearizable reads that are not answered, by the number that the core was given."""
        self._read_count = 0
        self._released: list[ReadState] = []
        """Those that the core has released in this turn."""
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
        self._site_checkpoint = f"checkpoint {member_id}"
        self._site_election = f"election ticks {member_id}"

    @property
    def loop(self) -> CoreLoop:
        """The loop of this life."""
        assert self._loop is not None
        return self._loop

    @property
    def saving(self) -> bool:
        """Whether a hard state is on its way to the disk."""
        return self._store is not None and self._store.saving is not None

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
        self.failure = None
        self._store = SimStore(
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
            release_reads=self._released.extend,
            fail=self._end,
        )
        self._loop.listen([self])
        if conditions.snapshot_entries:
            self.keeper = SimKeeper(self.member_id, conditions, self.disk, self._world)
            self.keeper.settle(self.committed_index)

    def die(self) -> None:
        """End this life; the disk keeps what the conditions let it keep."""
        choices = self._world.choices
        if self._store is not None and self._store.saving is not None:
            if choices.chance(self._site_saves, 0.5):
                self._store.finish_save()
            self._store.saving = None
        if self.keeper is not None:
            self.keeper.die()
            self.keeper = None
        self.raft = self._loop = self._store = None
        self.life += 1
        self.hang_up()
        self.disk.crash(self.conditions.keep, choices.seed(self._site_keeps))
        self._world.checker.died(self.member_id)

    def lose_volume(self, kept_rate: float | None) -> None:
        """Lose, while it is dead, all that its disk held, or part of it."""
        self.disk.lose(kept_rate)
        self._world.checker.promises.lost_volume(self.member_id)

    def remove_front(self, rate: float) -> bool:
        """Remove entries from the front, as retention by force does: whoever may lack them."""
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

    def on_turn(self, committed_index: int) -> None:
        """Answer what waits; called by the loop at the end of a turn that changed something."""
        raft = self.raft
        assert raft is not None
        leads = raft.role is Role.LEADER
        if self._waiting and (not leads or self._waiting[0].proposal.term != raft.term):
            # Before looking at the committed index: it may cover what replaced them.
            self.give_up()
        if committed_index != self.committed_index:
            self._commit(committed_index)
        if self._released or self._confirmed:
            self._answer_reads(leads=leads)
        if leads:
            self._world.checker.leads(self.member_id, raft.term)

    def judge(self) -> None:
        """Let the judge compare what the core knows with what is on the disk."""
        raft, checker = self.raft, self._world.checker
        assert raft is not None
        checker.worked(self.member_id, raft.durable_index, raft.ledger_end_index)
        checker.memberships.knows(self.member_id, raft.membership)

    def hard_state_saved(self) -> None:
        """Go on with the work whose hard state has reached the disk."""
        assert self._store is not None
        self._store.finish_save()
        self.loop.hard_state_saved()

    def _end(self, error: Exception) -> None:
        """Note why the loop stopped. Anything but a death or found damage is a bug, and raised."""
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
        self._released.clear()
        self._confirmed.clear()

    def _answer_reads(self, *, leads: bool) -> None:
        """Answer the reads that the core has released, once what they see is committed here.

        Who leads no more refuses them: what they wait for may never be committed.
        """
        released: Sequence[ReadState] = tuple(self._released)
        self._released.clear()
        for state in released:
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
