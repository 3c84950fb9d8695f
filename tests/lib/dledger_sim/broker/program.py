"""One life of a member's broker: the production `Broker` on a simulated member.

The log, the volume, the port for members and the threads are stand-ins. The broker, the drafts, the
registration of producers and the member that the broker sees (`dledger_node.embedding`) are real.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from dledger_broker.broker import Broker
from dledger_broker.metrics import BrokerCounters
from dledger_broker.settings import BrokerSettings
from dledger_formats.log.disk import EntryHeader
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.settings import NodeSettings
from dledger_node.embedding import Member
from dledger_node.raft.core import Raft
from dledger_node.remoting import native
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.input_turns import InputTurns
from dledger_node.remoting.limits import Limits, Reason
from dledger_node.remoting.native import Hello
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.disk_reads import DiskReads
from dledger_node.services.drafts import Drafts
from dledger_node.services.idempotent import IdempotentAppends
from dledger_node.services.program_reads import ProgramReads
from dledger_node.services.refusals import Prove
from dledger_node.shell.loop import TurnListener
from dledger_node.shell.server import DLedgerServer
from dledger_node.state_machine.apply import BATCH_BYTES_MAX
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.store.log.log_store import LogStore
from dledger_sim.broker.loop import MemberLoop
from dledger_sim.broker.stand_ins import ProgramMember, SimLogStore, SimRoom, SimState, is_cached
from dledger_sim.broker.wires import End, Wires
from dledger_sim.judges.violation import ViolationError

GROUP: Final = "g"
NODE_PORT: Final = 40911
BROKER_PORT: Final = 10911
PENDING_MAX: Final = 1000
EPOCH_MS: Final = 1_700_000_000_000
_NEVER_S: Final = 1e18
"""A constant clock: what a broker does takes no time."""


def host_of(member_id: str) -> str:
    """Return a member's address."""
    return f"10.0.0.{int(member_id.removeprefix('n')) + 1}"


class LeaderTold:
    """Notifies the broker of leader changes, as `LeaderWatch` does."""

    def __init__(self, core: Raft) -> None:
        self._core = core
        self._told = ""
        self._changed = asyncio.Event()

    def leader_view(self) -> Any:
        """Return a view whose token differs after each change of the leader."""
        core = self._core
        return SimpleNamespace(token=f"{core.leader_id} {core.term} {core.master}")

    async def leader_changed(self, token: str) -> None:
        """Return once the token differs."""
        while self.leader_view().token == token:
            await self._changed.wait()

    def on_turn(self, _: int) -> None:
        """Report a change."""
        token = self.leader_view().token
        if token != self._told:
            self._told = token
            self._changed.set()
            self._changed = asyncio.Event()


class MemberPort(asyncio.Protocol):
    """A connection from another member to the port for members."""

    def __init__(self, served: dict[int, Any]) -> None:
        self.address = ""
        self._served = served
        self._decoder = FrameDecoder()
        self._end: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio`."""
        assert isinstance(transport, End)
        self._end = transport

    def data_received(self, data: bytes) -> None:
        """Answer the HELLO, and hand requests to the broker."""
        for command in self._decoder.feed(data):
            if command.code == native.HELLO_CODE:
                answer = RemotingCommand(code=0, opaque=0, flag=frames.RESPONSE_FLAG)
                self.send(frames.encode(answer))
            elif command.code in self._served:
                self._served[command.code](command, self)

    def send(self, data: bytes) -> None:
        """See `PeerConnection`."""
        if self._end is not None:
            self._end.write(data)

    def cut(self, reason: Reason, detail: str) -> None:
        """See `PeerConnection`."""
        raise AssertionError(f"a member sends what none does: {reason} {detail}")


class SimEmbedding(Member):
    """The member that the broker sees; its wall clock is the run's, a little wrong."""

    def __init__(self, server: Any, loop: MemberLoop, skew_ms: int) -> None:
        super().__init__(cast("DLedgerServer", server))
        self._loop, self._skew_ms = loop, skew_ms

    def wall_ms(self) -> int:
        """See `Member`."""
        return EPOCH_MS + self._skew_ms + int(self._loop.time() * 1000)

    def read(
        self, first_index: int, last_index: int, bytes_max: int = BATCH_BYTES_MAX
    ) -> tuple[list[CommittedEntry], EntryHeader]:
        """See `Member`."""
        if last_index > self.end_index:
            detail = f"{self.self_id} reads entry {last_index} of a log up to {self.end_index}"
            raise ViolationError("a broker reads what its log has", detail)
        return super().read(first_index, last_index, bytes_max)

    def read_cached(self, fd: int, buffer: bytearray, at: int) -> int:
        """See `Member`. Whether the cache has it depends on the place, for reproducible runs."""
        return os.preadv(fd, [buffer], at) if is_cached(at) else 0


class Program:
    """The broker of one life of a member, and the services under it."""

    def __init__(
        self,
        member: ProgramMember,
        core: Raft,
        loop: MemberLoop,
        wires: Wires,
        store: SimLogStore,
        *,
        folder: Path,
        member_ids: Sequence[str],
        skew_ms: int,
        name_servers: tuple[str, ...] = (),
    ) -> None:
        """Begin to serve. `folder` has the member's consume queues."""
        self.loop = loop
        self.state = SimState(member)
        self._view = LeaderTold(core)
        log_store, room = cast("LogStore", store), SimRoom(member)
        node = NodeSettings(
            group=GROUP,
            self_id=member.member_id,
            peers={one: f"{host_of(one)}:{NODE_PORT}" for one in member_ids},
            store_base_dir=str(folder),
            pending_requests_max=PENDING_MAX,
        )
        with loop.running():
            self.drafts = Drafts(node, core, log_store, room=room, drive=member.drive)
            self.idempotent = IdempotentAppends(
                core, log_store, group=GROUP, waiters_max=PENDING_MAX, room=room,
                disk_reads=DiskReads(ReadTurns(loop.call_soon)), drive=member.drive,
                prove=member.prove,
            )  # fmt: skip
            server = self._server(node, core, store, member.prove)
            embedding = SimEmbedding(server, loop, skew_ms)
            addresses = {one: f"{host_of(one)}:{BROKER_PORT}" for one in member_ids}
            settings = BrokerSettings(
                node=node, addresses=addresses, name=GROUP, name_servers=name_servers
            )
            self._counters = BrokerCounters()
            self.broker = Broker(settings, embedding, self._counters, loop.accept_at)
            wires.listen(loop, member.member_id, NODE_PORT, self._accept)
            self._serving = self.broker.run()
            loop.create_task(self._serving).add_done_callback(self._ended)

    @property
    def listeners(self) -> tuple[TurnListener, ...]:
        """The parts that follow the core's turns."""
        return (self.idempotent, self.drafts, self._view)

    @property
    def has_rebuilt(self) -> bool:
        """Whether a reader has found that the consume queues contradict the log."""
        return self._counters.values["queue_rebuilds"] > 0

    def end(self) -> None:
        """End with the life of the member; later calls have no effect."""
        self.loop.close()
        with self.loop.running(), contextlib.suppress(ValueError):  # it may be what ends it
            self._serving.close()

    def expire(self) -> None:
        """End requests that have waited too long, and continue with those that can be written."""
        with self.loop.running():
            now_s = self.loop.time()
            self.idempotent.expire(now_s)
            self.drafts.expire(now_s)
            self.drafts.go_on()

    def applied(self) -> None:
        """Notify the broker that a batch is applied."""
        with self.loop.running():
            for listener in self.state.listeners:
                listener(self.state.applied_index)

    def _server(self, node: NodeSettings, core: Raft, store: SimLogStore, prove: Prove) -> Any:
        gate = Gate(Limits(), self.loop.time)
        gate.input_turns = InputTurns(now_s=lambda: _NEVER_S)
        gate.peer_turns = InputTurns(now_s=lambda: _NEVER_S)
        self._peer_requests: dict[int, Any] = {}

        def hello(peer_id: str) -> Hello:
            return Hello(
                group=GROUP, sender_id=node.self_id, receiver_id=peer_id, incarnation=1,
                segment_size_bytes=node.segment_size_bytes, protocol=native.OLDEST_PROTOCOL,
            )  # fmt: skip

        clients = SimpleNamespace(
            core=core,
            store=store,
            state=self.state,
            gate=gate,
            read_turns=ReadTurns(self.loop.call_soon, lambda: _NEVER_S),
            drafts=self.drafts,
            program_reads=ProgramReads(),
            idempotent=self.idempotent,
            proofs=SimpleNamespace(prove_read=lambda _consistency, answer: prove(answer)),
            appends=SimpleNamespace(is_owned_by_program=False),
            peer_requests=self._peer_requests,
            # It matters for an address of the group only, which these members do not have.
            peers=SimpleNamespace(hello=hello, call_when_link_lost=lambda _: None),
            group=GROUP,
            self_id=node.self_id,
        )
        return SimpleNamespace(clients=clients, view=self._view, fail=self._fail)

    def _accept(self) -> MemberPort:
        return MemberPort(self._peer_requests)

    def _fail(self, error: BaseException) -> None:
        self.loop.failure = error

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._fail(task.exception() or AssertionError("the broker has ended"))
