"""The asyncio client of one DLedger group.

    async with DLedgerClient(servers=["orders-nodes:40911"], group="orders") as client:
        appended = await client.append(b"hello")
        async for outcome in client.append_all(bodies): ...
        entry = await client.get(appended.index)

The servers are only where to begin: METADATA names the members and the leader, and the client
follows the leader to wherever it goes. What surely had no effect is sent again until it is taken or
its deadline passes. An append whose outcome is unknown, since a connection broke or a quorum did
not answer, is reported as unknown and never sent twice, unless `at_least_once` is asked for.
"""

import asyncio
import random as random_module
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from dledger_client.addresses import parse_servers
from dledger_client.append_stream import Bodies, append_stream
from dledger_client.backoff import pause_s
from dledger_client.calls import APPEND, GET, Call, CallKind
from dledger_client.dispatcher import Dispatcher
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    RefusedError,
)
from dledger_client.members import Timing
from dledger_client.outcomes import Appended, Outcome
from dledger_client.range_reader import ANSWER_BYTES, entries_of, read_range
from dledger_client.search import ask_everyone
from dledger_client.statistics import AppendStatistics
from dledger_client.tasks import TaskScope
from dledger_formats import disk
from dledger_formats.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    DLedgerEntry,
    DLedgerResponseCode,
    GetEntriesRequest,
    Message,
)

IN_FLIGHT: Final = 1024
IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
CALLS_MAX: Final = 8192
"""Single appends and gets at a time; more wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """What one member says of the group."""

    group: str
    leader_id: str | None
    peers: dict[str, str]
    """Every member's id and host:port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What a client has while it is entered."""

    loop: asyncio.AbstractEventLoop
    tasks: TaskScope
    dispatcher: Dispatcher
    turns: asyncio.Semaphore
    """Bounds the single calls."""


class DLedgerClient:
    """Appends to and reads from a group; used with `async with`, in one event loop."""

    def __init__(
        self,
        servers: Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        timing: Timing | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Name the group and where to begin; nothing is connected yet.

        `servers` are HOST:PORT or ID=HOST:PORT; Java's servers need the id. With `follow_leader`
        off, only these are ever asked, and NotLeaderError tells when one does not lead: this is for
        testing a Service, or for a forwarded port. `at_least_once` sends an append again whose
        outcome is unknown, so that it may be in the log more than once. AddressError for a server
        that cannot be read.
        """
        self.group = group
        self.servers = parse_servers(servers)
        self.timing = timing or Timing()
        self.statistics = AppendStatistics()
        self._follow_leader = follow_leader
        self._at_least_once = at_least_once
        self._random = random
        self._session: _Session | None = None

    async def __aenter__(self) -> Self:
        tasks = TaskScope()
        dispatcher = Dispatcher(
            self.group,
            self.servers,
            self.timing,
            self.statistics,
            tasks.spawn,
            follow_leader=self._follow_leader,
            random=self._random,
        )
        await tasks.__aenter__()
        self._session = _Session(
            loop=asyncio.get_running_loop(),
            tasks=tasks,
            dispatcher=dispatcher,
            turns=asyncio.Semaphore(CALLS_MAX),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._entered()
        self._session = None
        session.dispatcher.close()
        await session.dispatcher.members.close()
        await session.tasks.__aexit__(kind, error, traceback)

    @property
    def leader_id(self) -> str | None:
        """The id of the leader that was followed last."""
        return self.statistics.leader_id

    async def metadata(self) -> GroupMetadata:
        """Ask who the members are and who leads; `leader_id` is None when all say that nobody does.

        GroupUnreachableError when no member answers before the deadline.
        """
        members = self._entered().dispatcher.members
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            answer = await ask_everyone(members)
            elapsed_s = loop.time() - began_s
            if isinstance(answer, RefusedError):
                raise answer
            if not isinstance(answer, ClientError):
                return GroupMetadata(
                    group=self.group, leader_id=answer.leader_id, peers=answer.peers
                )
            if elapsed_s >= self.timing.deadline_s:
                raise GroupUnreachableError(
                    f"no member of the group {self.group} answered within {elapsed_s:.1f} s; "
                    f"the last problem: {answer}"
                )
            await asyncio.sleep(pause_s(elapsed_s, self._random))

    async def append(self, body: bytes, *, deadline_s: float | None = None) -> Appended:
        """Append one entry and return where it is, once a quorum holds it.

        OutcomeUnknownError when it may or may not be in the log; RefusedError and
        GroupUnreachableError when it is not and will not be.
        """
        async with self._entered().turns:
            answer = await self._append_call(body, deadline_s).answer
        if isinstance(answer, ClientError):
            raise answer
        assert isinstance(answer, AppendEntryResponse)
        return Appended(index=answer.index, term=answer.term, pos=answer.pos)

    def append_all(
        self, bodies: Bodies, *, in_flight: int = IN_FLIGHT, deadline_s: float | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Append many bodies and yield what became of each, in the order of the bodies.

        Up to `in_flight` appends are awaited at a time. Their indexes follow the order of the
        bodies only while nothing has to be sent again; Java's servers mix pipelined appends even
        then. Nothing is raised for an append that fails: its outcome says so.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}; at least 1 is needed")
        return append_stream(
            lambda body: self._append_call(body, deadline_s),
            bodies,
            in_flight=in_flight,
            in_flight_bytes=IN_FLIGHT_BYTES,
            spawn=self._entered().tasks.spawn,
        )

    async def get(self, index: int, *, deadline_s: float | None = None) -> DLedgerEntry:
        """Read one entry; NoEntryError when there is none at this index (yet, or any more)."""
        async with self._entered().turns:
            answer = await self._get_call(index, 0, deadline_s).answer
        return entries_of(answer, index)[0]

    def get_range(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[DLedgerEntry, None]:
        """Read the entries `first`..`last`, in order; to the end of the log without `last`."""
        return read_range(
            lambda begin: self._get_call(begin, ANSWER_BYTES, deadline_s), first, last
        )

    def _entered(self) -> _Session:
        if self._session is None:
            raise RuntimeError("DLedgerClient is used outside of its `async with`")
        return self._session

    def _append_call(self, body: bytes, deadline_s: float | None) -> Call:
        if not isinstance(body, bytes):
            raise TypeError(f"a body must be bytes, not {type(body).__name__}")
        request = AppendEntryRequest(group=self.group, body=body)
        call = self._call(APPEND, request, deadline_s, is_repeatable=self._at_least_once)
        if len(body) > disk.BODY_SIZE_MAX:
            message = f"a body of {len(body)} bytes; at most {disk.BODY_SIZE_MAX} are allowed"
            call.answer.set_result(RefusedError(DLedgerResponseCode.UNEXPECTED_ARGUMENT, message))
            return call
        self._entered().dispatcher.submit(call)
        return call

    def _get_call(self, begin: int, max_size: int, deadline_s: float | None) -> Call:
        request = GetEntriesRequest(group=self.group, begin_index=begin, max_size=max_size)
        call = self._call(GET, request, deadline_s, is_repeatable=True)
        self._entered().dispatcher.submit(call)
        return call

    def _call(
        self, kind: CallKind, request: Message, deadline_s: float | None, *, is_repeatable: bool
    ) -> Call:
        session = self._entered()
        now_s = session.loop.time()
        return Call(
            kind=kind,
            request=request,
            is_repeatable=is_repeatable,
            began_s=now_s,
            deadline_s=now_s + (self.timing.deadline_s if deadline_s is None else deadline_s),
            carrier=session.dispatcher,
            answer=session.loop.create_future(),
        )
