"""What a program that is built on a member may use, and what it must provide.

The program runs in the member's process and on its event loop. Its entries are the only ones that
clients' requests add to the log; everything else of the member is as in a plain group.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from prometheus_client.registry import Collector

from dledger_formats.http.broker_status import BrokerStatus
from dledger_formats.log.disk import EntryHeader
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.requests import Consistency, Message
from dledger_node.remoting import native
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.remoting.service import ServePeer
from dledger_node.services.draft_numbers import Numbers
from dledger_node.services.drafts import Drafts, Stamper
from dledger_node.shell.server import DLedgerServer
from dledger_node.state_machine.apply import BATCH_BYTES_MAX, entries_of
from dledger_node.state_machine.keeper import StateKeeper
from dledger_node.state_machine.machine import CommittedEntry, NamedMachine, StateMachine
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.stored_range import RangeMovedError
from dledger_node.store.segments import page_cache

MachineT = TypeVar("MachineT", bound=StateMachine)


class Member:
    """The member, as its program sees it. All methods belong to the event loop's thread, except
    for those that say that they block.
    """

    def __init__(self, server: DLedgerServer) -> None:
        self._server = server
        clients = server.clients
        self._core = clients.core
        self._store = clients.store
        state = clients.state
        assert isinstance(state, StateKeeper), "a program brings its state machine"
        self._state = state
        self.gate: Gate = clients.gate
        self.read_turns: ReadTurns = clients.read_turns
        self.drafts: Drafts = clients.drafts
        self._reads = clients.program_reads
        self._begun_at = (-1, -1, 0)
        """Where the log began when last read: first index, generation of the log, position."""

    def own(self, owner: Stamper) -> None:
        """Let the program own the log: clients may no longer append entries of their own."""
        self._server.clients.appends.is_owned_by_program = True
        self.drafts.owner = owner

    @property
    def self_id(self) -> str:
        """This member's id."""
        return self._core.config.self_id

    @property
    def member_ids(self) -> Sequence[str]:
        """Voters and learners, by the last membership entry of this member's log."""
        return self._core.membership.members

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in ms since 1970."""
        return time.time_ns() // 1_000_000

    @property
    def leader_id(self) -> str | None:
        """The leader, as far as this member knows it."""
        return self._core.leader_id

    @property
    def leads(self) -> bool:
        """Whether this member leads."""
        return self._core.leads

    @property
    def master(self) -> bool:
        """Whether this member leads, and an entry of its term is committed."""
        return self._core.master

    @property
    def term(self) -> int:
        """The member's term."""
        return self._core.term

    @property
    def body_bytes_max(self) -> int:
        """The maximum size of an entry's body."""
        return self._store.body_bytes_max

    @property
    def leader_token(self) -> str:
        """A text that changes with the term and the leader, and once this member is master."""
        return self._server.view.leader_view().token

    async def leader_changed(self, token: str) -> None:
        """Return once `leader_token` differs from `token`."""
        await self._server.view.leader_changed(token)

    # -- the other members -----------------------------------------------------------------------

    def serve_peers(self, code: int, serve: ServePeer) -> None:
        """Let the program serve the requests with this code that other members send."""
        self._server.clients.peer_requests[code] = serve

    def hello(self, peer_id: str, opaque: int) -> bytes:
        """Return the first frame of a connection to another member, which that member answers."""
        return native.encode_hello(self._server.clients.peers.hello(peer_id), opaque)

    def call_when_link_lost(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a member's id whenever this member's connection to it breaks."""
        self._server.clients.peers.call_when_link_lost(listener)

    def register_producer(self, done: Callable[[DLedgerResponseCode, int], None]) -> None:
        """Register a producer of numbered drafts. This member must lead.

        `done` is called with SUCCESS and the producer's identity once that is committed, or with
        the code that says why it is not.
        """

        def answered(answer: Message) -> None:
            assert isinstance(answer, RegisterProducerResponse)
            done(answer.code, answer.producer)

        clients = self._server.clients
        request = RegisterProducerRequest(group=clients.group, remote_id=clients.self_id)
        clients.idempotent.register(request, answered)

    def find_numbers(self, numbers: Numbers) -> list[int | None]:
        """Return the log index of each number of a known producer; None where the log has none."""
        find = self._store.producers.table.find
        found = [find(numbers.producer, sequence) for sequence in numbers.sequences]
        return [None if isinstance(index, Finding) else index for index in found]

    @property
    def readable_index(self) -> int:
        """Index up to which this member knows that every entry is committed."""
        return self._core.readable_index

    def prove(self, done: Callable[[bool], object]) -> None:
        """Call `done` once, with whether this member has committed all entries that were
        acknowledged before this call. A member that does not lead asks its leader
        (`ReadProofs.prove_read`).
        """

        def answered(code: DLedgerResponseCode) -> None:
            done(code is DLedgerResponseCode.SUCCESS)

        self._server.clients.proofs.prove_read(Consistency.LINEARIZABLE, answered)

    # -- the state -------------------------------------------------------------------------------

    def machine(self, kind: type[MachineT]) -> MachineT:
        """Return the state machine. A batch may be under way in it, in a thread."""
        machine = self._state.machine
        assert isinstance(machine, kind)
        return machine

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied; -1 before the first."""
        return self._state.applied_index

    @property
    def is_applying(self) -> bool:
        """Whether a batch is under way: the machine may be ahead of the applied index."""
        return self._state.is_applying

    @property
    def has_applied_all(self) -> bool:
        """Whether every entry of this member's log is committed and applied."""
        return self._state.applied_index >= self._store.end_index

    def keep_entries(self, covered: Callable[[], int]) -> None:
        """Let retention keep the entries after the index that `covered` returns."""
        self._state.keep_for_program(covered)

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the applied index after every batch."""
        self._state.call_when_applied(listener)

    # -- the log ---------------------------------------------------------------------------------

    @property
    def begin_index(self) -> int:
        """Index of the first entry in the log."""
        return self._store.begin_index

    @property
    def end_index(self) -> int:
        """Index of the last entry in the log; -1 in a log that never had one."""
        return self._store.end_index

    @property
    def begin_pos(self) -> int:
        """Position of the first entry in the log; 0 for an empty one. May block."""
        begin_index = self._store.begin_index
        if begin_index > self._store.end_index:
            return 0
        known = begin_index, self._store.generation
        begun_at = self._begun_at
        if begun_at[:2] != known:
            with self._reads.reading():
                pos = self._store.positions(begin_index, begin_index)[0]
            begun_at = self._begun_at = *known, pos
        return begun_at[2]

    @property
    def known_begin_pos(self) -> int | None:
        """The value of `begin_pos` if it is known without a read of the log; else None."""
        begin_index = self._store.begin_index
        begun_at = self._begun_at
        if begun_at[:2] == (begin_index, self._store.generation):
            return begun_at[2]
        return 0 if begin_index > self._store.end_index else None

    def read(
        self, first_index: int, last_index: int, bytes_max: int = BATCH_BYTES_MAX
    ) -> tuple[list[CommittedEntry], EntryHeader]:
        """Return committed entries that the program wrote, and the header of the last of any kind.

        At least one entry is read, then as many as `bytes_max` allows; blocks. Raises IndexError if
        the log lacks the first entry, StoreDamagedError if one is damaged.
        """
        with self._state.reading, self._reads.reading():
            runs, _ = self._store.read_range(first_index, last_index, bytes_max)
        return entries_of(runs, first_index)

    def read_in_memory(
        self, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[list[CommittedEntry], EntryHeader] | None:
        """Return committed entries as `read` does, but only from memory (`LogReader.cached_run`):
        all of them, or None. Does not block. Raises StoreDamagedError.
        """
        known = self._state.just_applied
        if known is not None and (known.first_index, known.last.index) == (first_index, last_index):
            return list(known.entries), known.last
        if not self._state.reading.acquire(blocking=False):
            return None
        try:
            run = self._store.cached_run(first_index, last_index, bytes_max)
        except RangeMovedError:
            return None
        finally:
            self._state.reading.release()
        return None if run is None else entries_of([run], first_index)

    def header(self, index: int) -> EntryHeader | None:
        """Return the header of a sound entry; None if the log lacks it; blocks."""
        with self._state.reading, self._reads.reading():
            if not self._store.begin_index <= index <= self._store.end_index:
                return None
            return self._store.entry(index)[0]

    def stored_at(self, pos: int, size: int) -> bytes:
        """Return stored bytes (`LogReader.stored_at`); blocks."""
        with self._reads.reading():
            return self._store.stored_at(pos, size)

    def cached_at(self, pos: int, buffer: memoryview) -> bool:
        """Fill a buffer with stored bytes (`LogReader.cached_at`); does not block."""
        return self._store.cached_at(pos, buffer)

    def reading_disk(self) -> AbstractContextManager[None]:
        """Return the context for a read of the program's own files. If the disk does not answer
        the read, the member hands its leadership over. Any thread may call this.
        """
        return self._reads.reading()

    def read_cached(self, fd: int, buffer: bytearray, at: int) -> int:
        """Read a file of the program (`page_cache.read_cached`); does not block."""
        return page_cache.read_cached(fd, buffer, at)

    def fail(self, error: BaseException) -> None:
        """Stop this member, because the program cannot go on."""
        self._server.fail(error)


class Program(Protocol):
    """A program that is built on a member. The member may be opened several times."""

    @property
    def machine(self) -> NamedMachine:
        """The state machine of the group."""

    @property
    def collectors(self) -> Sequence[Collector]:
        """The metrics of the program."""

    def report(self) -> BrokerStatus:
        """Return what `/status` shows of the program. A member whose program does not serve is not
        ready.
        """

    async def serve(self, member: Member) -> None:
        """Serve until cancelled. An error stops the member."""

    async def drain(self) -> None:
        """Take no further requests, and return once those that were taken are answered.

        Called before a member in service stops, after it has handed its leadership over; cancelled
        if it takes too long.
        """
