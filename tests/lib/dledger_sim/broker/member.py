"""A member with a broker: its log has bytes, and its state is the broker's."""

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from dledger_broker.queues import checkpoint
from dledger_broker.queues.feed import FOLDER
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq import consume_queue
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES
from dledger_node.raft.ready import Truncate, Write, WriteProposal, WriteSnapshot
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.waiting import Answer
from dledger_node.state_machine.machine import CommittedEntry, StateMachine
from dledger_node.state_machine.restore import Applied
from dledger_sim.broker import name_servers
from dledger_sim.broker.bodies import Bodies
from dledger_sim.broker.loop import LoopWorld, MemberLoop
from dledger_sim.broker.numbers import SAVE_RATE, ProducersFile, SimProducers
from dledger_sim.broker.program import Program
from dledger_sim.broker.stand_ins import SimLogStore
from dledger_sim.broker.wires import Wires
from dledger_sim.group.conditions import SKEW_MS_MAX, Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.keeper import SimKeeper
from dledger_sim.group.member import SimMember
from dledger_sim.group.store import SimStore
from dledger_sim.group.world import World
from dledger_sim.judges.history import Answer as Outcome
from dledger_sim.judges.history import Asked, Operation
from dledger_sim.judges.violation import ViolationError

DAMAGE_RATE: Final = 0.5
"""Probability that a crash damages a member's consume queues, which can be rebuilt from the log."""


class BrokerWorld(World, LoopWorld, Protocol):
    """Services of the group that a member with a broker uses."""

    bodies: Bodies
    wires: Wires
    folder: Path
    """Folder of the consume queues."""

    def program_of(self, member_id: str) -> "MemberProgram":
        """Return the broker's side of a member."""

    def drive(self, member_id: str, give: Callable[[], None] | None = None) -> None:
        """Run a turn of a member's core, with an input."""

    def knows_committed(self) -> None:
        """Handle newly committed entries of the checker."""


class MemberProgram(Protocol):
    """The broker's side of a member, as its store and its keeper see it."""

    producers: SimProducers
    program: Program | None


class BrokerStore(SimStore):
    """A store whose entries have bytes: a proposal is stamped as it is written."""

    def _write(self, write: Write) -> None:
        world: BrokerWorld = self._world  # type: ignore[assignment]
        producers = world.program_of(self._member_id).producers
        if isinstance(write, WriteProposal):
            self._perhaps_die()
            self._append(write.first_index, self._stamped(write, world.bodies))
        else:
            super()._write(write)
        if isinstance(write, Truncate):
            producers.cut(write.first_index)
        elif isinstance(write, WriteSnapshot):
            producers.restore()
        else:
            producers.note()

    def _stamped(self, write: WriteProposal, bodies: Bodies) -> list[tuple[int, int]]:
        entries = write.entries
        assert isinstance(entries, ProposedEntries)
        if entries.stamp is not None:
            pos, positions = bodies.end_pos(self._disk.cached), []
            for body in entries.bodies:
                positions.append(pos)
                pos += ENTRY_HEADER_SIZE + len(body)
            entries.stamp(write.term, positions)
        channels = entries.channels or [0] * len(entries.bodies)
        return [
            (write.term, bodies.add(body, channel, entries.magic))
            for body, channel in zip(entries.bodies, channels, strict=True)
        ]


class BrokerKeeper(SimKeeper):
    """A keeper whose machine is ahead of its applied index while a batch is under way."""

    @property
    def is_applying(self) -> bool:
        """Whether a batch is under way."""
        return self._applies

    def may_begin_at(self, first_index: int, committed_index: int) -> int:
        """See `SimKeeper`: the broker keeps entries, too, and the numbers need their file."""
        member = self._broker_world.program_of(self._member_id)
        begin_index = self._disk.begin_index
        if member.program is None or not member.producers.serves(first_index):
            return begin_index
        covered_index = member.program.state.covered()
        first_index = min(first_index, covered_index + 1)
        return super().may_begin_at(first_index, min(committed_index, covered_index))

    @property
    def _broker_world(self) -> BrokerWorld:
        return self._world  # type: ignore[return-value]

    def _apply(self, entries: list[CommittedEntry], last_index: int, term: int) -> None:
        if last_index > self.applied.index:
            self.applied.machine.apply(entries)
        self._later("ends a batch", self._end_batch, last_index, term)

    def _end_batch(self, last_index: int, term: int) -> None:
        if last_index > self.applied.index:
            machine = self.applied.machine
            self.applied = Applied(machine=machine, index=last_index, term=term)
            self._rules.has(self._member_id, last_index, machine.dump())
        self._batch_ends()
        program = self._broker_world.program_of(self._member_id).program
        if program is not None:
            program.applied()
        self._save_if_due()
        self.settle(self._committed_index)

    def _save_if_due(self) -> None:
        if not self._applies:
            super()._save_if_due()


class Proof(Operation):
    """A linearizable read of the broker, which only checks whether its member leads."""

    __slots__ = ("_answer",)

    def __init__(self, now_us: int, answer: Answer) -> None:
        super().__init__(0, Asked.READ_INDEX, now_us)
        self._answer = answer

    def answer(self, answer: Outcome, now_us: int) -> None:
        """See `Operation`."""
        super().answer(answer, now_us)
        is_proved = answer is Outcome.DONE
        self._answer(DLedgerResponseCode.SUCCESS if is_proved else DLedgerResponseCode.NOT_LEADER)


class BrokerMember(SimMember):
    """One member with a broker."""

    store_kind, keeper_kind = BrokerStore, BrokerKeeper

    def __init__(
        self, member_id: str, conditions: Conditions, disk: SimDisk, world: BrokerWorld
    ) -> None:
        super().__init__(member_id, conditions, disk, world)
        self.program: Program | None = None
        self.was_damaged = False
        """Whether the consume queues were damaged in any life."""
        self.producers: SimProducers
        self._broker_world = world
        self._last_applied: tuple[StateMachine, int, bool] | None = None
        """The result of `applied` at the member's death; None while the member runs."""
        self._numbers = ProducersFile()
        self._skew_ms = world.choices.number(f"wall {member_id}", -SKEW_MS_MAX, SKEW_MS_MAX, 0)
        self._folder = world.folder / f"dledger-{member_id}" / FOLDER
        self._site_numbers = f"saves numbers {member_id}"
        self._site_queues = f"queues {member_id}"

    @property
    def queue_files(self) -> Path:
        """The folder of the units of all topics."""
        return self._folder / consume_queue.FOLDER

    @property
    def is_busy(self) -> bool:
        """Whether the log takes no entries now."""
        return self.saving

    @property
    def applied(self) -> tuple[StateMachine, int, bool]:
        """The state machine, its applied index, and whether a batch is under way.

        A member may die in the middle of a call from its broker, which then gets the last state.
        """
        if self._last_applied is not None:
            return self._last_applied
        assert isinstance(self.keeper, BrokerKeeper)
        return self.keeper.applied.machine, self.keeper.applied.index, self.keeper.is_applying

    def drive(self) -> None:
        """Run a turn of the core's loop."""
        self._broker_world.drive(self.member_id)

    def prove(self, answer: Answer) -> None:
        """Answer once the member has proved that it leads, or has failed to."""
        give = partial(self.read_index, Proof(self._broker_world.now_us, answer))
        self._broker_world.drive(self.member_id, give)

    def start(self) -> None:
        """See `SimMember`."""
        world = self._broker_world
        self._last_applied = None
        super().start()
        self.producers = SimProducers(self.disk, world.bodies, self._numbers)
        loop = MemberLoop(
            self.member_id, self.life, world, world.wires, self.conditions.broker_speed
        )
        assert self.raft is not None
        self.program = Program(
            self,
            self.raft,
            loop,
            world.wires,
            SimLogStore(self.disk, world.bodies, self.producers),
            folder=world.folder,
            member_ids=self.conditions.member_ids,
            skew_ms=self._skew_ms,
            name_servers=name_servers.addresses(self.conditions.name_servers),
        )
        self.loop.listen([self, *self.program.listeners])

    def die(self) -> None:
        """See `SimMember`. The consume queues may be damaged: they are built from the log."""
        world = self._broker_world
        if self.program is not None:
            self._last_applied = self.applied
            self.program.end()
            self.program = None
        world.wires.die(self.member_id)
        super().die()
        if world.choices.chance(self._site_queues, DAMAGE_RATE):
            rng = random.Random(world.choices.seed(self._site_queues))
            damage_queues(self._folder, rng)
            self.was_damaged = True

    def lose_volume(self, kept_rate: float | None) -> None:
        """See `SimMember`."""
        super().lose_volume(kept_rate)
        self._numbers.image = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def on_turn(self, committed_index: int) -> None:
        """See `SimMember`."""
        super().on_turn(committed_index)
        assert self.raft is not None
        if self.program is not None and self.program.has_rebuilt and not self.was_damaged:
            raise ViolationError("sound queues are not built again", self.member_id)
        self.producers.table.mark_stable(min(committed_index, self.raft.durable_index))
        if self._broker_world.choices.chance(self._site_numbers, SAVE_RATE):
            self.producers.save()

    def _commit(self, committed_index: int) -> None:
        super()._commit(committed_index)
        self._broker_world.knows_committed()


def damage_queues(folder: Path, rng: random.Random) -> None:
    """Cut, zero, exchange or remove files of the consume queues, or their checkpoint.

    A crash loses no unit before the checkpoint; the other damage must heal, too.
    """
    if rng.random() < 0.2:
        (folder / checkpoint.FILE_NAME).unlink(missing_ok=True)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    kinds: tuple[Callable[[Path, random.Random], None], ...] = (_cut, _zero, _flip, _remove)
    if len(paths) > 1 and rng.random() < 0.2:
        one, other = rng.sample(paths, 2)
        one.write_bytes(other.read_bytes())
    for path in rng.sample(paths, min(len(paths), rng.randint(1, 3))):
        rng.choice(kinds)(path, rng)


def _cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])


def _zero(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    first = rng.randrange(len(raw) // UNIT_BYTES + 1) * UNIT_BYTES
    count = rng.randint(1, 3) * UNIT_BYTES
    raw[first : first + count] = bytes(len(raw[first : first + count]))
    path.write_bytes(raw)


def _flip(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    if raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def _remove(path: Path, _: random.Random) -> None:
    path.unlink()
