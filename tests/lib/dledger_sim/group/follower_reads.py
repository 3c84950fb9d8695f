"""Linearizable reads on members that do not lead, by the node's own `services.read_index`."""

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_node.services.read_index import ReadIndexes
from dledger_node.shell.loop import CoreLoop
from dledger_sim.group.conditions import TICK_US
from dledger_sim.group.world import World
from dledger_sim.judges.history import Answer, Operation


class FollowerReads:
    """The reads of one life of a member, and its peers' questions to it as their leader."""

    def __init__(self, world: World, raft: Raft, loop: CoreLoop, life: int) -> None:
        self._world = world
        self._raft = raft
        self._loop = loop
        conditions = world.conditions
        self._indexes = ReadIndexes(
            raft,
            world.send,
            incarnation=life,
            wait_s=2 * conditions.election_ticks * TICK_US / 1e6,
            repeat_s=conditions.heartbeat_ticks * TICK_US / 1e6,
        )

    @property
    def waiting_count(self) -> int:
        """Return the number of reads without an answer."""
        return self._indexes.waiting_count

    def read(self, operation: Operation) -> None:
        """Handle a linearizable read; its answer is the index up to which it sees the log."""

        def answer(code: DLedgerResponseCode) -> None:
            done = code is DLedgerResponseCode.SUCCESS
            operation.index = self._raft.readable_index
            operation.answer(Answer.DONE if done else Answer.REFUSED, self._world.now_us)

        self._indexes.ask(answer, self._now_s)

    def receive(self, message: ReadIndexRequest | ReadIndexResponse) -> None:
        """Handle a peer's message."""
        if isinstance(message, ReadIndexRequest):
            self._loop.turn(lambda: self._indexes.asked(message))
        else:
            self._indexes.answered(message, self._now_s)

    def proved(self, request: ReadIndexRequest, index: int | None) -> None:
        """Answer a peer, once the core has released its read."""
        self._indexes.proved(request, index)

    def on_turn(self, committed_index: int) -> None:
        """Answer the reads whose index is committed."""
        self._indexes.on_turn(committed_index, self._now_s)

    def expire(self) -> None:
        """Answer the reads that have waited too long."""
        self._indexes.expire(self._now_s)

    def give_up(self) -> None:
        """Answer every read."""
        self._indexes.give_up()

    @property
    def _now_s(self) -> float:
        return self._world.now_us / 1e6
