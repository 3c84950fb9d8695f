"""The asyncio client of one DLedger group.

    async with DLedgerClient(servers=["orders-nodes:40911"], group="orders") as client:
        appended = await client.append(b"hello")
        outcomes = await client.append_batch([b"a", b"b"])
        async for outcome in client.append_all(bodies): ...
        entry = await client.get(appended.index)
        async for entry in client.get_range(0): ...
        async for entry in client.tail(): ...

The servers are only where to begin: METADATA names the members and the leader, and the client
follows the leader to wherever it goes. What surely had no effect is sent again until it is taken or
its deadline passes. An append whose outcome is unknown, since a connection broke or a quorum did
not answer, is reported as unknown and never sent twice, unless `at_least_once` or `idempotent` is
asked for.

Any call may be cancelled. An append that is cancelled after it was sent is one of unknown outcome:
it may be in the log, now or later.
"""

import asyncio
import random as random_module
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from dledger_client.append.batches import body_type_error
from dledger_client.append.outcomes import Appended, Outcome
from dledger_client.append.stream import Bodies, append_stream
from dledger_client.calls.call import CHANGE_MEMBERSHIP, METADATA, READ_REGISTER, TRANSFER
from dledger_client.calls.dispatcher import Dispatcher
from dledger_client.calls.statistics import AppendStatistics
from dledger_client.cluster.addresses import parse_servers
from dledger_client.cluster.backoff import pause_s
from dledger_client.cluster.members import Timing
from dledger_client.cluster.search import ask_all_members
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_client.read.log_reader import LogReader
from dledger_client.read.tail import LogBounds, bounds, tail
from dledger_client.session import Session
from dledger_client.tasks import TaskScope
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import (
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.protocol.register import SET, ReadRegisterRequest, ReadRegisterResponse
from dledger_formats.protocol.requests import (
    AppendEntryResponse,
    DLedgerEntry,
    DLedgerResponseCode,
    MetadataRequest,
    MetadataResponse,
)

IN_FLIGHT: Final = 1024
IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
BATCH_MAX: Final = 8192
"""Bodies in one batch."""
TRANSFER_S: Final = 5.0
"""For so long a leader may try to hand its leadership over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """What one member says of the group."""

    group: str
    leader_id: str | None
    peers: dict[str, str]
    """Every member's id and host:port."""
    term: int
    """-1 of Java's servers, which do not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembership:
    """Who belongs to the group, as its leader says."""

    group: str
    leader_id: str | None
    term: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    """Who takes entries and counts in no quorum."""
    index: int
    """The entry that says so; -1 while the settings do."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Every member's id and host:port."""
    addable: dict[str, str] = field(default_factory=dict)
    """Who may be added."""


class DLedgerClient:
    """Appends to and reads from a group; used with `async with`, in one event loop."""

    def __init__(
        self,
        servers: Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        idempotent: bool = False,
        timing: Timing | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Name the group and where to begin; nothing is connected yet.

        `servers` are HOST:PORT or ID=HOST:PORT; Java's servers need the id. With `follow_leader`
        off, only these are ever asked, and NotLeaderError tells when one does not lead: this is for
        testing a Service, or for a forwarded port. `at_least_once` sends an append again whose
        outcome is unknown, so that it may be in the log more than once; `idempotent` does too, and
        it is in the log once: this needs servers of this project (docs/idempotent-appends.md).
        AddressError for a server that cannot be read; ValueError for both at once.
        """
        if at_least_once and idempotent:
            raise ValueError("an append is sent at_least_once or idempotent, and not both")
        self.group = group
        self.servers = parse_servers(servers)
        self.timing = timing or Timing()
        self.statistics = AppendStatistics()
        self._follow_leader = follow_leader
        self._at_least_once = at_least_once
        self._idempotent = idempotent
        self._random = random
        self._session: Session | None = None

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
        self._session = Session(
            self.group,
            dispatcher,
            tasks,
            timing=self.timing,
            at_least_once=self._at_least_once,
            idempotent=self._idempotent,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._require_session()
        self._session = None
        session.close()
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
        members = self._require_session().dispatcher.members
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            answer = await ask_all_members(members)
            elapsed_s = loop.time() - began_s
            if isinstance(answer, RefusedError):
                raise answer
            if not isinstance(answer, ClientError):
                return GroupMetadata(
                    group=self.group,
                    leader_id=answer.leader_id,
                    peers=answer.peers,
                    term=answer.term,
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
        answer = await self._require_session().append(body, deadline_s)
        assert isinstance(answer, AppendEntryResponse)
        return Appended(index=answer.index, term=answer.term, pos=answer.pos)

    async def append_batch(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> list[Outcome]:
        """Append up to BATCH_MAX bodies, all on their way at once; returns what became of each.

        Nothing is raised for an append that fails. ValueError when there are more, or they hold
        more than IN_FLIGHT_BYTES: `append_all` takes any number.
        """
        size_bytes = sum(map(len, bodies))
        if len(bodies) > BATCH_MAX or size_bytes > IN_FLIGHT_BYTES:
            raise ValueError(
                f"a batch of {len(bodies)} bodies and {size_bytes} bytes; at most {BATCH_MAX} and "
                f"{IN_FLIGHT_BYTES} are allowed"
            )
        for body in bodies:
            if not isinstance(body, bytes):
                raise body_type_error(body)
        async with self._require_session().batch_slots:
            outcomes = self._stream(bodies, BATCH_MAX, deadline_s)
            async with aclosing(outcomes):
                return [outcome async for outcome in outcomes]

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
        return self._stream(bodies, in_flight, deadline_s)

    async def get(self, index: int, *, deadline_s: float | None = None) -> DLedgerEntry:
        """Read one entry; NoEntryError when there is none at this index (yet, or any more)."""
        return await self._reader(deadline_s).get(index)

    def get_range(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[DLedgerEntry, None]:
        """Read the entries `first`..`last`, in order; to the end of the log without `last`."""
        return self._reader(deadline_s).get_range(first, last)

    def tail(
        self, first: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[DLedgerEntry, None]:
        """Read the entries from `first` on, or those appended from now on, for ever.

        Each comes as soon as it is committed: our servers keep the request until then; Java's are
        asked 2 to 50 times a second, and hand out what is not committed yet. NoEntryError when the
        log begins after the next entry; GroupUnreachableError when no leader is found for as long
        as the deadline.
        """
        return tail(self._reader(deadline_s), first, asyncio.sleep)

    async def bounds(self, *, deadline_s: float | None = None) -> LogBounds:
        """Ask for the first and the last index that can be read."""
        return await bounds(self._reader(deadline_s))

    async def set_register(
        self, key: int, value: int, *, deadline_s: float | None = None
    ) -> Appended:
        """Append the entry that sets a register, as `append` does; both are signed 32-bit numbers.

        It sets it in a group that keeps a register. struct.error for other numbers.
        """
        return await self.append(SET.pack(key, value), deadline_s=deadline_s)

    async def read_register(self, key: int, *, deadline_s: float | None = None) -> int | None:
        """Read a register: None when it was never set. All that was acknowledged counts.

        RefusedError in a group that keeps none, as Java's; GroupUnreachableError.
        """
        request = ReadRegisterRequest(group=self.group, key=key)
        answer = await self._require_session().ask(READ_REGISTER, request, deadline_s)
        assert isinstance(answer, ReadRegisterResponse)
        return answer.value

    async def transfer(
        self, transferee_id: str, *, term: int | None = None, deadline_s: float | None = None
    ) -> GroupMetadata:
        """Hand the leadership to a member; returns the group with its new leader.

        `term`, the leader's, is needed for Java's servers, which do not tell it. RefusedError when
        there is no such member, it lags too far behind, or did not take over in time;
        OutcomeUnknownError when the answer was lost and the member does not lead yet.
        """
        before = await self.metadata()
        if before.leader_id == transferee_id:
            return before
        request = _transfer_request(before, transferee_id, term)
        try:
            await self._require_session().ask(
                TRANSFER, request, deadline_s, is_repeatable=False, answer_s=TRANSFER_S
            )
        except (RefusedError, OutcomeUnknownError):
            after = await self.metadata()
            if after.leader_id != transferee_id:
                raise
            return after
        return await self.metadata()

    async def membership(self, *, deadline_s: float | None = None) -> GroupMembership:
        """Ask the leader who belongs to the group; of Java's servers, all members are voters."""
        request = MetadataRequest(group=self.group)
        answer = await self._require_session().ask(METADATA, request, deadline_s)
        assert isinstance(answer, MetadataResponse)
        return GroupMembership(
            group=self.group,
            leader_id=answer.leader_id,
            term=answer.term,
            voters=answer.voters or tuple(sorted(answer.peers)),
            learners=answer.learners,
            index=answer.membership_index,
            addresses=answer.peers,
            addable=answer.addable,
        )

    async def change_membership(
        self, change: ChangeKind, member_id: str, *, deadline_s: float | None = None
    ) -> GroupMembership:
        """Change one member; returns once a majority holds the change, or all is so already.

        While another change is under way, or a learner that shall vote lags too far behind, it is
        asked for again until the deadline. RefusedError says what must be done first;
        OutcomeUnknownError and GroupUnreachableError leave open whether it happened: ask again.
        """
        request = ChangeMembershipRequest(group=self.group, change=change, member_id=member_id)
        answer = await self._require_session().ask(CHANGE_MEMBERSHIP, request, deadline_s)
        assert isinstance(answer, ChangeMembershipResponse)
        return GroupMembership(
            group=self.group,
            leader_id=answer.leader_id,
            term=answer.term,
            voters=answer.voters,
            learners=answer.learners,
            index=answer.index,
        )

    def _stream(
        self, bodies: Bodies, in_flight: int, deadline_s: float | None
    ) -> AsyncGenerator[Outcome, None]:
        session = self._require_session()
        spawn = session.tasks.spawn
        return append_stream(session, bodies, in_flight, IN_FLIGHT_BYTES, deadline_s, spawn)

    def _require_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("DLedgerClient is used outside of its `async with`")
        return self._session

    def _reader(self, deadline_s: float | None) -> LogReader:
        return LogReader(session=self._require_session(), group=self.group, deadline_s=deadline_s)


def _transfer_request(
    group: GroupMetadata, transferee_id: str, term: int | None
) -> LeadershipTransferRequest:
    if transferee_id not in group.peers:
        raise RefusedError(
            DLedgerResponseCode.UNKNOWN_MEMBER,
            f"{transferee_id} is no member of the group {group.group}; members are "
            f"{', '.join(sorted(group.peers))}",
        )
    if term is None:
        term = group.term
    if term < 0:
        raise RefusedError(
            DLedgerResponseCode.INCONSISTENT_TERM,
            f"the servers of the group {group.group} do not tell their term, as Java's do not; "
            "name the leader's term",
        )
    return LeadershipTransferRequest(group=group.group, term=term, transferee_id=transferee_id)
