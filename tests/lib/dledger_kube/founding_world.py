"""A fake group that has not begun, with real cores: a StatefulSet, its controller, the collector of
its pods, a network that delays messages, and the records of the founding.

A process has the first voters of the StatefulSet that made its pod. What it promises stays on the
disk of its ordinal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from dledger_formats.http.status import NodeStatus
from dledger_formats.peers import parse_peers
from dledger_formats.settings import GroupState
from dledger_kube.objects import group, node_status
from dledger_node.raft.messages import Message
from dledger_node.raft.ready import HardState
from dledger_operator import names
from dledger_operator.api_objects import SettingsView, StatefulSetView, VolumeClaimView
from dledger_operator.behaviors.founding import founded_again
from dledger_operator.behaviors.founding.founded_again import IN_FLIGHT_S_MAX
from dledger_operator.behaviors.founding.founding import (
    FoundingRecords,
    find_shape,
    is_founded_again,
)
from dledger_operator.clients.errors import ConflictError, NotFoundError
from dledger_operator.problem import Problem
from dledger_operator.resources import config_map
from dledger_operator.spec.shape import Shape
from dledger_sim.stage.driver import CoreDriver

IDENTITY = "an-identity"
EVENT_S = 0.05
IN_FLIGHT_MAX = 40
"""Further messages are lost."""
BLANK = HardState(term=0, vote_for=None, joining=True)


@dataclass(slots=True)
class Process:
    """A member's process, and the unread messages that have reached its host."""

    core: CoreDriver
    first_voters: int
    inbox: list[Message] = field(default_factory=list)


@dataclass(slots=True)
class Made:
    """The StatefulSet."""

    uid: int
    first_voters: int
    replicas: int
    version: int = 1
    seen: int = 0
    """The version that its controller has seen."""
    leaving: bool = False


class FoundingWorld:
    """The world outside the operator; `rng` makes its choices."""

    def __init__(self, rng: Random, first_voters: int) -> None:
        self.rng = rng
        self.records = Shape.of_new(first_voters)
        self.superseded: frozenset[int] = frozenset()
        self.records_version = 0
        self.named = ""
        """The record of the StatefulSet in the ConfigMap."""
        self.status = first_voters
        self.made: Made | None = None
        self.controller: Made | None = None
        """The StatefulSet as its controller has last seen it."""
        self.processes: dict[int, Process] = {}
        self.leaving: set[int] = set()
        """Ordinals whose pods are being deleted; their processes still run."""
        self.disks: dict[int, HardState] = {}
        self.stuck: set[int] = set()
        """Ordinals whose process does not start."""
        self.network: list[tuple[float, Message]] = []
        self.now_s = 0.0
        self.cut: frozenset[str] = frozenset()
        """Two members that cannot reach each other."""
        self.heals = False
        """Whether links are healed and cut."""
        self.first_voters = first_voters
        self.led: set[int] = set()
        """The numbers of first voters of the foundings that have elected a leader."""
        self._uid = self._incarnation = 0

    # -- what happens by itself --------------------------------------------------------------------

    def happen(self) -> None:
        """Let one random event happen."""
        self.now_s += EVENT_S
        self.rng.choice(
            (self._control, self._collect, self._start, self._start, self._restart, self._cut)
            + 4 * (self._tick, self._deliver, self._deliver, self._read)
        )()

    def settle(self) -> None:
        """Let all due events happen, in order."""
        for _ in range(40):
            self.cut = frozenset()
            self.now_s += 3 * EVENT_S
            self._control()
            self._collect()
            for ordinal in range(names.REPLICAS_MAX):
                self._start_one(ordinal)
            while self.network:
                self._deliver()
            for ordinal in sorted(self.processes):
                self._read_all(ordinal)
                self._run(ordinal, self.processes[ordinal].core.tick(self.rng.randrange(1, 4)))

    def _control(self) -> None:
        """Let the controller act on what it knows, or see the current state."""
        if self.rng.random() < 0.3:
            self.controller = replace(self.made) if self.made else None
            if self.made:
                self.made.seen = self.made.version
        known = self.controller
        if known is not None and not known.leaving:
            self.leaving |= {each for each in self.processes if each >= known.replicas}

    def _collect(self) -> None:
        """End processes, and delete a StatefulSet without pods."""
        if self.made is not None and self.made.leaving:
            self.leaving |= self.processes.keys()
            if not self.processes:
                self.made = None
        for ordinal in sorted(self.leaving):
            if self.rng.random() < 0.05:
                self.leaving.discard(ordinal)
                self.processes.pop(ordinal, None)

    def _start(self) -> None:
        self._start_one(self.rng.randrange(names.REPLICAS_MAX))

    def _start_one(self, ordinal: int) -> None:
        known = self.controller
        if known is None or known.leaving or ordinal >= known.replicas or ordinal in self.stuck:
            return
        if ordinal in self.processes or self.made is None or self.made.uid != known.uid:
            return
        disk = self.disks.setdefault(ordinal, BLANK)
        self._incarnation += 1
        addable = range(known.first_voters, names.REPLICAS_MAX)
        core = CoreDriver(
            term=disk.term, vote_for=disk.vote_for, joining=disk.joining, new_group=True,
            voter_count=known.first_voters, self_id=names.member_id(ordinal),
            addable_ids=tuple(map(names.member_id, addable)),
            randint=self.rng.randint, incarnation=self._incarnation,
        )  # fmt: skip
        self.processes[ordinal] = Process(core, known.first_voters)

    def _restart(self) -> None:
        if self.processes and self.rng.random() < 0.02:
            del self.processes[self.rng.choice(sorted(self.processes))]

    def _cut(self) -> None:
        """Cut the link between two members, or heal the one that is cut."""
        if self.heals and self.rng.random() < 0.1:
            pair = self.rng.sample(range(self.first_voters), 2) if not self.cut else []
            self.cut = frozenset(map(names.member_id, pair))

    def _deliver(self) -> None:
        """Bring a message to its receiver's host, or lose it."""
        if not self.network:
            return
        sent_s, message = self.network.pop(self.rng.randrange(len(self.network)))
        if self.now_s - sent_s > IN_FLIGHT_S_MAX:
            return
        receiver = self.processes.get(names.ordinal(message.receiver))
        is_cut = {message.sender, message.receiver} == self.cut
        if receiver is not None and not is_cut and self.rng.random() < 0.95:
            receiver.inbox.append(message)

    def _read(self) -> None:
        ready = [each for each, process in self.processes.items() if process.inbox]
        if ready:
            self._read_all(self.rng.choice(ready))

    def _read_all(self, ordinal: int) -> None:
        process = self.processes[ordinal]
        while process.inbox:
            self._run(ordinal, process.core.receive(process.inbox.pop(0)))

    def _tick(self) -> None:
        if self.processes:
            ordinal = self.rng.choice(sorted(self.processes))
            ticks = self.rng.randrange(1, 5)
            self._run(ordinal, self.processes[ordinal].core.tick(ticks))

    def _run(self, ordinal: int, messages: Sequence[Message]) -> None:
        process = self.processes[ordinal]
        self.disks[ordinal] = process.core.hard_state
        sent = [(self.now_s, message) for message in messages]
        self.network = [*self.network, *sent][-IN_FLIGHT_MAX:]
        if process.core.raft.leads:
            self.led.add(process.first_voters)

    # -- the API server ----------------------------------------------------------------------------

    def stateful_set(self) -> StatefulSetView | None:
        """Read the StatefulSet."""
        made = self.made
        if made is None:
            return None
        return StatefulSetView(
            namespace="air", name="flights", uid=str(made.uid), resource_version=str(made.version),
            generation=made.version, replicas=made.replicas, first_voters=made.first_voters,
            identity=IDENTITY, leaving=made.leaving, volume_claim_templates=(),
            template_hash="seen" if made.seen == made.version else "",
        )  # fmt: skip

    def pods(self) -> frozenset[str]:
        """Read which members have a pod."""
        return frozenset(map(names.member_id, self.processes))

    def running(self) -> frozenset[str]:
        """Read which members run."""
        return frozenset(map(names.member_id, self.processes.keys() - self.leaving))

    def unbound(self) -> frozenset[str]:
        """Read whose claim was never bound."""
        replicas = self.made.replicas if self.made else 0
        return frozenset(
            names.member_id(each) for each in range(replicas) if each not in self.disks
        )

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        """Set the replicas of the StatefulSet."""
        made = self._read_as(stateful_set)
        made.replicas, made.version = replicas, made.version + 1

    async def delete_stateful_set(self, stateful_set: StatefulSetView) -> None:
        """Delete the StatefulSet after its pods."""
        made = self._read_as(stateful_set)
        made.leaving, made.version = True, made.version + 1

    async def delete_volume_claim(self, claim: VolumeClaimView) -> None:
        """Delete a claim, which never happens in these tests."""
        raise AssertionError(claim)

    async def settings(self, *_: str) -> SettingsView:
        """Read the ConfigMap."""
        return SettingsView(
            data=config_map.founding(group(), self.records),
            resource_version=str(self.records_version),
            superseded=self.superseded,
            stateful_set=self.named,
        )

    async def record_founding(
        self, settings: SettingsView, data: Mapping[str, str], superseded: Sequence[int]
    ) -> None:
        """Record another founding on the ConfigMap."""
        if settings.resource_version != str(self.records_version):
            raise ConflictError("it has changed")
        self.records = Shape.of_new(len(parse_peers(data["DLEDGER_PEERS"])))
        self.superseded = frozenset(superseded)
        self.records_version += 1

    def _read_as(self, stateful_set: StatefulSetView) -> Made:
        made = self.made
        if made is None or str(made.uid) != stateful_set.uid:
            raise NotFoundError("it is gone")
        if str(made.version) != stateful_set.resource_version:
            raise ConflictError("it has changed")
        return made

    # -- reconciling -------------------------------------------------------------------------------

    async def shape(self, replicas: int, pause: Callable[[], None] = lambda: None) -> Shape | None:
        """Return the shape of the group by its records, and create a missing StatefulSet; None if
        the records contradict each other, or another operator was faster. `pause` is called between
        two requests.
        """
        settings, made = await self.settings(), self.stateful_set()
        records = FoundingRecords(
            settings=settings, stateful_set=made, claims=(), status={"firstVoters": self.status}
        )
        shape = find_shape(group(replicas=replicas), records, led=False, voters=0)
        if isinstance(shape, Problem):
            return None
        assert shape.state is GroupState.NEW
        if made is None and not (is_founded_again(records) and self.processes):
            if not await self._fence(settings, "", replicas, shape, pause):
                return None
            pause()
            if self.made is not None:
                return None
            self._uid += 1
            self.made = Made(self._uid, shape.first_voters, shape.pods)
        elif made is not None and not await self._fence(settings, made.uid, replicas, shape, pause):
            return None
        self.status = shape.first_voters
        return shape

    async def _fence(
        self,
        settings: SettingsView,
        uid: str,
        replicas: int,
        shape: Shape,
        pause: Callable[[], None],
    ) -> bool:
        """Apply the ConfigMap's record of the StatefulSet; return False on a conflict."""
        pause()
        if settings.resource_version != str(self.records_version):
            return False
        again = founded_again.applies(replicas, shape)
        named = founded_again.fence(uid, settings.stateful_set, again=again)
        self.records_version += named != self.named
        self.named = named
        return True

    def answers(self) -> dict[str, NodeStatus]:
        """Ask all running members, which first read some of the messages on their hosts."""
        told = {}
        for ordinal in sorted(self.processes.keys() - self.leaving):
            if self.rng.random() < 0.8:
                told[names.member_id(ordinal)] = self._answer(ordinal)
            self._read_all(ordinal)
        return told

    def _answer(self, ordinal: int) -> NodeStatus:
        raft = self.processes[ordinal].core.raft
        return node_status(
            names.member_id(ordinal), term=raft.term, leader_id=raft.leader_id, master=False,
            ready=False, ledger_begin_index=-1, ledger_end_index=raft.ledger_end_index,
            ledger_end_term=-1, committed_index=-1, joining=bool(raft.joining),
            unheard_voters=raft.unheard_voters,
        )  # fmt: skip
