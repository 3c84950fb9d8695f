"""A group whose members' work takes time, under clients that request as much as they can."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dledger_node.remoting.message_kinds import PeerMessage
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.crowd import TAILS, TAILS_PER_CONNECTION, CrowdConnection, ModestConnection
from dledger_sim.group.machine import ENTRY_US, HARD_STATE_US, MESSAGE_US, TICK_US, Machine
from dledger_sim.group.member import SimMember
from dledger_sim.group.network import SimLink
from dledger_sim.judges.load_rules import LoadRules
from dledger_sim.runs.choices import Choices
from dledger_sim.runs.coverage import Coverage
from dledger_sim.runs.transcript import Transcript

MODEST_US: Final = 50_000
"""Time between two reads of the modest client of a flood."""


class LoadedCluster(SimCluster):
    """A running group; every input of a member waits for its event loop."""

    def __init__(
        self,
        conditions: Conditions,
        rng: random.Random,
        transcript: Transcript | None = None,
        *,
        choices: Choices | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self.load_rules = LoadRules()
        self._machines: dict[str, Machine] = {}
        self._modest: dict[tuple[str, int], ModestConnection] = {}
        self._readers: list[ModestConnection] = []
        super().__init__(conditions, rng, transcript, choices=choices, coverage=coverage)

    def flood(self, kind: str, member_id: str, connections: int, duration_us: int) -> None:
        """Let a crowd flood a member with requests, while a modest client sends few."""
        self._note(member_id, f"is asked for {kind} by {connections} connections")
        self.fault_count += 1
        machine = self._machine(member_id)
        if kind == TAILS:
            connections *= TAILS_PER_CONNECTION
        machine.connection_count += connections
        until_us = self.now_us + duration_us
        for _ in range(connections):
            crowd = CrowdConnection(kind, machine, until_us)
            machine.loop.call_soon(partial(machine.of_clients, crowd.begin))
        reader = ModestConnection(machine)
        self._readers.append(reader)
        self._read_modestly(machine, reader, until_us)
        self.after(duration_us, self._leave, machine, connections)

    def calm(self, conditions: Conditions) -> None:
        """See `SimCluster`. The crowds disconnect."""
        for machine in self._machines.values():
            machine.is_calm = True
        super().calm(conditions)

    def owes_answers(self) -> bool:
        """See `SimCluster`."""
        clients = (*self._modest.values(), *self._readers)
        return any(one.requests or one.waits for one in clients) or super().owes_answers()

    def _read_modestly(self, machine: Machine, client: ModestConnection, until_us: int) -> None:
        if self.now_us < until_us:
            if not client.waits:
                machine.loop.call_soon(partial(machine.of_clients, client.ask_to_read))
            self.after(MODEST_US, self._read_modestly, machine, client, until_us)

    def _leave(self, machine: Machine, connections: int) -> None:
        machine.connection_count -= connections
        gone = [tail for tail in machine.tails if not tail.is_there]
        machine.tails = [tail for tail in machine.tails if tail.is_there]
        for tail in gone:
            machine.read_turns.forget(tail)

    # -- every input waits for the loop ------------------------------------------------------------

    def _tick(self, member: SimMember, life: int) -> None:
        self._put(member, TICK_US, super()._tick, member, life)

    def _ticks(self, member: SimMember) -> tuple[int, int]:
        return self._machine(member.member_id).ticks()

    def _deliver(
        self, sender: str, receiver: str, link: SimLink, resets: int, sent: PeerMessage | bytes
    ) -> None:
        member = self.members[receiver]
        self._put(member, MESSAGE_US, super()._deliver, sender, receiver, link, resets, sent)

    def _flushed(self, member: SimMember, life: int) -> None:
        self._put(member, MESSAGE_US, super()._flushed, member, life)

    def _hard_state_saved(self, member: SimMember, life: int) -> None:
        self._put(member, MESSAGE_US, super()._hard_state_saved, member, life)

    def _link(self, member_id: str, peer_id: str, lost: bool) -> None:
        self._put(self.members[member_id], 0.0, super()._link, member_id, peer_id, lost)

    def _asked(self, member: SimMember, client: int, handle: Callable[[], None]) -> None:
        """Let a client's request wait for its turn."""
        machine = self._machine(member.member_id)
        connection = self._modest.setdefault((member.member_id, client), ModestConnection(machine))
        machine.loop.call_soon(partial(machine.of_clients, partial(connection.ask, handle)))

    def _turn(self, member: SimMember, what: str, turn: Callable[[], None] | None = None) -> None:
        disk = member.disk
        end, hard_state = len(disk.cached), disk.hard_state
        committed_index = member.committed_index
        super()._turn(member, what, turn)
        machine = self._machine(member.member_id)
        if machine.tails and member.committed_index > committed_index:
            machine.committed()
        machine.loop.work(ENTRY_US * max(0, len(disk.cached) - end))
        if disk.hard_state is not hard_state:
            machine.loop.work(HARD_STATE_US)
        self.load_rules.turned([one.raft for one in self.members.values()])

    def _put(
        self, member: SimMember, fast_us: float, action: Callable[..., None], *arguments: Any
    ) -> None:
        self._machine(member.member_id).loop.after(fast_us, action, *arguments)

    def _machine(self, member_id: str) -> Machine:
        if member_id not in self._machines:
            self._machines[member_id] = Machine(self, self.conditions.slowness, self.load_rules)
        return self._machines[member_id]
