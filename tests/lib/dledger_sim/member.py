"""One member: a core and the shell that drives it, over a simulated disk.

The shell does what any shell must: a Ready in its order, one flush at a time, and acknowledgements
only while it still leads the proposal's term.
"""

import dataclasses
import random
from collections import deque
from collections.abc import Callable

from dledger_node.raft.config import RaftConfig
from dledger_node.raft.core import Proposal, Raft
from dledger_node.raft.member_state import Role
from dledger_node.raft.messages import AppendRequest, Message
from dledger_node.raft.ready import Ready, Truncate, Write, WriteNoop, WriteProposal, WritePushed
from dledger_sim.checker import Checker
from dledger_sim.conditions import Conditions
from dledger_sim.disk import Entry, SimDisk, chained

PROPOSALS_WAITING_MAX = 50
"""More are refused, as any shell does that wants to live."""


class DiedError(Exception):
    """The member died in the middle of a Ready."""


class SimMember:
    """One member's present life; `raft` is None while it is dead."""

    def __init__(
        self,
        member_id: str,
        conditions: Conditions,
        disk: SimDisk,
        checker: Checker,
        rng: random.Random,
        send: Callable[[Message], None],
    ) -> None:
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
        self._checker = checker
        self._rng = rng
        self._send = send
        self._waiting: deque[tuple[Proposal, tuple[int, ...]]] = deque()

    @property
    def leads(self) -> bool:
        """Whether this member believes that it leads."""
        return self.raft is not None and self.raft.role is Role.LEADER

    def start(self) -> None:
        """Begin a life with what the disk holds."""
        conditions = self.conditions
        self.committed_index = self.disk.checkpoint
        self._checker.started(self.member_id, self.committed_index)
        self.raft = Raft(
            RaftConfig(
                self_id=self.member_id,
                voters=conditions.member_ids,
                heartbeat_ticks=conditions.heartbeat_ticks,
                election_ticks=conditions.election_ticks,
                push_entries_max=conditions.push_entries_max,
                inflight_ranges_max=conditions.inflight_ranges_max,
            ),
            self.disk.hard_state,
            self.disk.log_terms(),
            committed_index=self.committed_index,
            randint=random.Random(self._rng.getrandbits(64)).randint,
        )

    def die(self) -> None:
        """End this life; the disk keeps what the conditions let it keep."""
        if self.saving is not None and self.saving.hard_state is not None:
            if self._rng.random() < 0.5:
                self._save(self.saving)
            self.saving = None
        self.raft = None
        self.life += 1
        self._waiting.clear()
        self.disk.crash(self._rng, self.conditions.keep)
        self._checker.died(self.member_id)

    def propose(self, bodies: tuple[int, ...]) -> None:
        """Let a client append."""
        assert self.raft is not None
        if len(self._waiting) >= PROPOSALS_WAITING_MAX:
            return
        proposal = self.raft.propose(len(bodies), bodies)
        if isinstance(proposal, Proposal):
            self._waiting.append((proposal, bodies))

    def work(self) -> bool:
        """Do all that the core asks for; true when saving the hard state takes a while.

        DiedError when it dies on the way.
        """
        assert self.raft is not None
        while (ready := self.raft.ready()) is not None:
            if ready.hard_state is not None:
                if self._rng.random() < self.conditions.slow_hard_state:
                    self.saving = ready
                    return True
                self._save(ready)
            self._do(ready)
        return False

    def hard_state_saved(self) -> None:
        """Go on with the Ready whose hard state has reached the disk."""
        assert self.saving is not None
        ready, self.saving = self.saving, None
        self._save(ready)
        self._do(ready)

    def _save(self, ready: Ready) -> None:
        assert ready.hard_state is not None
        self.disk.hard_state = ready.hard_state
        self._checker.saved(self.member_id, ready.hard_state)

    def _do(self, ready: Ready) -> None:
        assert self.raft is not None
        for write in ready.writes:
            self._perhaps_die()
            self._write(write)
        for message in ready.messages:
            self._perhaps_die()
            self._tell(message)
        self.raft.advance(ready)
        if not self.leads or (self._waiting and self._waiting[0][0].term != self.raft.term):
            # Before looking at the committed index: it may cover what replaced them.
            self._waiting.clear()
        self._commit(ready.committed_index)
        if self.raft.role is Role.LEADER:
            self._checker.leads(self.member_id, self.raft.term)

    def _perhaps_die(self) -> None:
        rate = self.conditions.crash_in_ready
        if rate and self._rng.random() < rate:
            raise DiedError

    def _write(self, write: Write) -> None:
        match write:
            case Truncate(first_index=first_index):
                self._checker.truncating(self.member_id, first_index)
                self.disk.truncate(first_index)
            case WriteNoop(index=index, term=term):
                self._append(index, [(term, -term)])
            case WriteProposal(first_index=first_index, term=term, entries=bodies):
                assert isinstance(bodies, tuple)
                self._append(first_index, [(term, body) for body in bodies])
            case WritePushed(entries=pushed):
                assert isinstance(pushed, PushedEntries)
                entries = pushed.entries[write.first_index - pushed.first_index :]
                self._append(write.first_index, [(entry.term, entry.body) for entry in entries])

    def _append(self, first_index: int, entries: list[tuple[int, int]]) -> None:
        assert first_index == len(self.disk.cached)
        for term, body in entries:
            entry = chained(self.disk.cached, term, body)
            self.disk.append(entry)
            self._checker.wrote(self.member_id, entry)

    def _tell(self, message: Message) -> None:
        self._checker.sending(message)
        if not isinstance(message, AppendRequest):
            self._send(message)
            return
        middle = message.last_index
        if message.first_index < middle and self._rng.random() < self.conditions.split_push:
            middle = self._rng.randint(message.first_index, message.last_index - 1)
            first = dataclasses.replace(message, last_index=middle)
            second = dataclasses.replace(
                message,
                previous_index=middle,
                previous_term=message.entries_term,
                first_index=middle + 1,
            )
            self._send(self._filled(first))
            self._send(self._filled(second))
        else:
            self._send(self._filled(message))

    def _filled(self, push: AppendRequest) -> AppendRequest:
        entries = self.disk.cached[push.first_index : push.last_index + 1]
        assert len(entries) == push.last_index - push.first_index + 1
        return dataclasses.replace(push, entries=PushedEntries(push.first_index, entries))

    def _commit(self, committed_index: int) -> None:
        assert self.raft is not None
        if committed_index == self.committed_index:
            return
        self._checker.told(self.member_id, committed_index)
        self.committed_index = committed_index
        while self._waiting and self._waiting[0][0].last_index <= committed_index:
            proposal, bodies = self._waiting.popleft()
            self._checker.acknowledged(proposal.first_index, bodies)
        if self._rng.random() < self.conditions.checkpoint:
            self.disk.checkpoint = min(committed_index, self.raft.durable_index)


@dataclasses.dataclass(frozen=True, slots=True)
class PushedEntries:
    """What an AppendRequest carries between simulated members."""

    first_index: int
    entries: list[Entry]
