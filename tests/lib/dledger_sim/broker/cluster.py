"""A group whose members are brokers, and the clients that use it."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from dledger_broker.state.broker_state import BrokerState
from dledger_sim.broker.bodies import Bodies
from dledger_sim.broker.clients import READ, BrokerClients
from dledger_sim.broker.member import BrokerMember
from dledger_sim.broker.name_servers import NameServers, host_of_server
from dledger_sim.broker.program import host_of
from dledger_sim.broker.wires import OUTSIDE, Wires
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import SimDisk
from dledger_sim.group.member import SimMember
from dledger_sim.group.snapshots import States
from dledger_sim.judges import queue_files
from dledger_sim.judges.broker_log import BrokerLog
from dledger_sim.judges.broker_rules import BrokerRules
from dledger_sim.judges.history import Answer, Asked, Operation
from dledger_sim.runs.choices import Choices
from dledger_sim.runs.coverage import Coverage
from dledger_sim.runs.transcript import Transcript

REGISTERED_S = 60.0
"""A name server that is up again is asked within 30 s, and answers at once."""


class BrokerCluster(SimCluster):
    """A running group of brokers. Connections follow the network's faults."""

    def __init__(
        self,
        conditions: Conditions,
        rng: random.Random,
        transcript: Transcript | None = None,
        *,
        choices: Choices | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self.bodies = Bodies()
        hosts = {host_of(one): one for one in conditions.member_ids}
        hosts |= {host_of_server(number): OUTSIDE for number in range(conditions.name_servers)}
        self.wires = Wires(self, hosts)
        self.states = States(lambda _: BrokerState(), self.bodies.messages)
        self._folder = tempfile.TemporaryDirectory(prefix="broker-sim-")
        self.folder = Path(self._folder.name)
        self.broker_log = BrokerLog(self.bodies)
        self._turning: str | None = None
        self._speed = conditions.broker_speed
        super().__init__(conditions, rng, transcript, choices=choices, coverage=coverage)
        self.name_servers = NameServers(
            conditions.name_servers, self, self.wires, lambda s: int(s * 1e6 / self._speed)
        )
        self.broker_rules = BrokerRules(self.broker_log, self)
        self.broker_clients = BrokerClients(self, self.broker_rules, self.wires)

    # -- services for members ----------------------------------------------------------------------

    def program_of(self, member_id: str) -> BrokerMember:
        """See `BrokerWorld`."""
        member = self.members[member_id]
        assert isinstance(member, BrokerMember)
        return member

    def drive(self, member_id: str, give: Callable[[], None] | None = None) -> None:
        """See `BrokerWorld`."""
        member = self.program_of(member_id)
        if member.raft is None:
            return
        if self._turning == member_id:
            member.loop.turn(give)
        else:
            self._turn(member, "works for its broker", lambda: member.loop.turn(give))

    def knows_committed(self) -> None:
        """See `BrokerWorld`."""
        self.broker_log.take(self.checker.committed)

    def thread_us(self, member_id: str) -> int:
        """See `LoopWorld`."""
        return self.choices.delay_us(f"thread {member_id}", self.conditions.thread_us)

    def when_awake(self, member_id: str, life: int, action: Callable[[], None]) -> None:
        """See `LoopWorld`."""
        member = self.members[member_id]
        if self._awake(member, life, self.when_awake, member_id, life, action):
            action()

    def when_up(self, member_id: str, action: Callable[[], None]) -> None:
        """See `WireWorld`."""
        if member_id == OUTSIDE:
            action()
            return
        member = self.members[member_id]
        if self._awake(member, member.life, self.when_up, member_id, action):
            action()

    def close(self) -> None:
        """Remove the files of the run."""
        for member in self.members.values():
            assert isinstance(member, BrokerMember)
            if member.program is not None:
                member.program.end()
        self._folder.cleanup()

    # -- clients -----------------------------------------------------------------------------------

    def _hear_clients(self) -> None:
        super()._hear_clients()
        self.propose = self._send_one

    def _send_one(self, member_id: str, count: int, client: int = 0) -> Operation:
        """Let a client send one message; the history has no other requests."""
        operation = Operation(client, Asked.APPEND, self.now_us, ())

        def ended(stored: bool) -> None:
            operation.answer(Answer.DONE if stored else Answer.REFUSED, self.now_us)

        self.broker_clients.send_once(member_id, ended)
        return operation

    def begin_index(self, member_id: str) -> int:
        """See `ClientWorld`."""
        return self.members[member_id].disk.begin_index

    def applied(self, member_id: str) -> tuple[int, int]:
        """See `ClientWorld`."""
        member = self.program_of(member_id)
        return member.life, -1 if member.raft is None else member.applied[1]

    def owes_answers(self) -> bool:
        """See `SimCluster`."""
        return self.broker_clients.waits or super().owes_answers()

    def check_answers(self) -> None:
        """See `SimCluster`."""
        self.broker_rules.judge_end()

    def recovered(self, timeout_us: int) -> None:
        """Check that every member serves every message, and that all delayed ones are delivered."""
        limit_us = timeout_us + self.broker_clients.us_of(self.broker_clients.settle_s)
        self.run_until(
            self.broker_log.all_delivered, limit_us, rule="every delayed message is delivered"
        )
        self.broker_clients.read_everything()
        self.run_until(
            lambda: self.broker_clients.has_read_everything,
            limit_us,
            rule="an acknowledged message is readable at its queue offset",
        )
        self.run_until(
            self._has_deleted_files, limit_us, rule="a deleted topic leaves nothing in the queues"
        )
        self.run_until(
            self._is_registered,
            limit_us + self.broker_clients.us_of(REGISTERED_S),
            rule="a name server knows the leader and all members in time",
        )
        self.broker_rules.counts["registrations"] += self.name_servers.taken

    def _has_deleted_files(self) -> bool:
        """Return whether no member's queue files have messages of a topic from before its deletion.

        Damage by a crash may have moved such messages anywhere.
        """
        log = self.broker_log
        positions = queue_files.positions_of_deleted(log)
        sound = [one for one in self.conditions.member_ids if not self.program_of(one).was_damaged]
        return not any(
            queue_files.has_any(self.program_of(one).queue_files, log.deleted_at, positions)
            for one in sound
        )

    def _is_registered(self) -> bool:
        leader = self.leader()
        topics = frozenset(place.topic for place in self.broker_log.queues if place.topic in READ)
        return leader is not None and self.name_servers.know(
            leader.member_id, self.conditions.member_ids, topics
        )

    # -- faults reach connections, too -------------------------------------------------------------

    def calm(self, conditions: Conditions) -> None:
        """See `SimCluster`."""
        super().calm(conditions)
        self.name_servers.calm()

    def heal_network(self) -> None:
        """See `SimCluster`."""
        super().heal_network()
        self.wires.heal()

    def reset_link(self, one: str, other: str) -> None:
        """See `SimCluster`."""
        super().reset_link(one, other)
        self.wires.reset(one, other)

    # -- turns -------------------------------------------------------------------------------------

    def _new_member(self, member_id: str, conditions: Conditions, disk: SimDisk) -> SimMember:
        return BrokerMember(member_id, conditions, disk, self)

    def _tick(self, member: SimMember, life: int) -> None:
        assert isinstance(member, BrokerMember)
        is_paused = self.now_us < member.paused_until_us
        super()._tick(member, life)
        program = member.program
        if program is not None and member.life == life and not is_paused:
            program.expire()
            program.loop.raise_failure()

    def _turn(self, member: SimMember, what: str, turn: Callable[[], None] | None = None) -> None:
        assert isinstance(member, BrokerMember)
        program = member.program
        assert program is not None
        before, self._turning = self._turning, member.member_id
        try:
            with program.loop.running():
                super()._turn(member, what, turn)
        finally:
            self._turning = before
        program.loop.raise_failure()
