"""The asyncio client of one DLedger group.

    async with DLedgerClient(servers=["orders-nodes:40911"], group="orders") as client:
        appended = await client.append(b"hello")
        outcomes = await client.append_batch([b"a", b"b"])
        async for outcome in client.append_all(bodies): ...
        entry = await client.get(appended.index)
        async for entry in client.get_range(0): ...
        async for batch in client.read_batches(0): ...
        async for entry in client.tail(): ...

The servers are only starting points: METADATA returns the members and the leader, and the client
follows the leader when it changes. The client resends a request that certainly had no effect until
it succeeds or its deadline passes. If a connection breaks or no quorum answers, the outcome of an
append is unknown: the client reports it as unknown and does not resend it, unless `at_least_once`
or `idempotent` is set.

Any call may be cancelled. The outcome of an append that is cancelled after it was sent is unknown.
"""

import asyncio
import random as random_module
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

from dledger_client import register
from dledger_client.admin import GroupAdmin, GroupMembership, GroupMetadata
from dledger_client.append.batches import check_batch_size
from dledger_client.append.in_order import append_in_order
from dledger_client.append.outcomes import Appended, Outcome
from dledger_client.append.stream import Bodies, append_stream, check_bodies
from dledger_client.calls.dispatcher import Dispatcher
from dledger_client.calls.member_reads import ReadFrom
from dledger_client.calls.statistics import AppendStatistics
from dledger_client.cluster import arguments
from dledger_client.cluster.addresses import parse_servers
from dledger_client.cluster.members import Timing, check_timing
from dledger_client.read import missing
from dledger_client.read.entry_batch import EntryBatch
from dledger_client.read.indexes import INDEX_MAX, check_index, check_range
from dledger_client.read.log_reader import LogReader
from dledger_client.read.tail import LogBounds, bounds, tail
from dledger_client.session import Session
from dledger_client.tasks import TaskScope
from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.requests import AppendEntryResponse, Consistency

IN_FLIGHT: Final = 1024
IN_FLIGHT_MAX: Final = 1 << 31
IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
BATCH_MAX: Final = 8192
"""Maximum number of bodies in one call of `append_batch`."""


class DLedgerClient:
    """Appends to and reads from a group; used with `async with`, in one event loop."""

    def __init__(
        self,
        servers: str | Sequence[str],
        group: str,
        *,
        follow_leader: bool = True,
        at_least_once: bool = False,
        idempotent: bool = False,
        read_from: str = ReadFrom.LEADER.value,
        consistency: str = Consistency.LINEARIZABLE.value,
        timing: Timing | None = None,
        admin_token: str = "",
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Configure the client; it connects when it is entered and used.

        Each of `servers` is HOST:PORT or ID=HOST:PORT; Java servers need the id. One text may
        contain several, separated by commas.

        If `follow_leader` is False, the client sends requests only to `servers`. This suits
        access from outside the cluster, by a Service or forwarded ports. A follower of this project
        passes plain appends on to its leader and answers reads by itself; any other request ends in
        NotLeaderError, an append only after `Timing.service_wait_s`: a Service may point to the new
        leader soon. While a server knows no leader, the client asks again until the deadline.

        `at_least_once` resends an append whose outcome is unknown, so the log may contain it more
        than once. `idempotent` resends it too, and the log contains it once; only this project's
        servers support it (docs/idempotent-appends.md).

        `read_from` is "leader", "followers" or "any": which members answer reads of entries. A
        client stays with one of them while it answers; the leader gets what no other answers.
        `consistency` is "linearizable" or "stale": a stale read may lack entries that were
        acknowledged, but needs no leader. Java's servers answer reads on the leader only.

        `transfer` and `change_membership` need `admin_token` in a group that demands it.

        Raises AddressError if a server address is invalid, TypeError or ValueError for any other
        invalid value, or if both `at_least_once` and `idempotent` are set.
        """
        self.group = arguments.check_text(group, "group")
        self.servers = parse_servers(servers)
        self.timing = Timing() if timing is None else check_timing(timing)
        self.statistics = AppendStatistics()
        self._follow_leader = arguments.check_flag(follow_leader, "follow_leader")
        self._at_least_once = arguments.check_flag(at_least_once, "at_least_once")
        self._idempotent = arguments.check_flag(idempotent, "idempotent")
        self._read_from = arguments.check_choice(read_from, "read_from", ReadFrom)
        self._consistency = arguments.check_choice(consistency, "consistency", Consistency)
        self._admin_token = arguments.check_secret(admin_token, "admin_token")
        self._random = arguments.check_function(random, "random")
        if at_least_once and idempotent:
            raise ValueError("at_least_once and idempotent are mutually exclusive")
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise RuntimeError("this DLedgerClient is open already; open another one")
        tasks = await TaskScope().__aenter__()
        dispatcher = Dispatcher(
            self.group,
            self.servers,
            self.timing,
            self.statistics,
            tasks.spawn,
            follow_leader=self._follow_leader,
            random=self._random,
        )
        self._session = Session(
            self.group,
            dispatcher,
            tasks,
            timing=self.timing,
            at_least_once=self._at_least_once,
            idempotent=self._idempotent,
            read_from=self._read_from,
            consistency=self._consistency,
            random=self._random,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._require_session().check_loop()
        session, self._session = self._require_session(), None
        await session.end(kind, error, traceback)

    @property
    def leader_id(self) -> str | None:
        """The id of the last leader that the client connected to."""
        return self.statistics.leader_id

    @property
    def trouble(self) -> str | None:
        """Why a request is waiting, for humans; None if none waits longer than usual."""
        return None if self._session is None else self._session.trouble

    async def metadata(self) -> GroupMetadata:
        """Ask for the members and the leader.

        `leader_id` is None if no member that answers knows a leader. Raises GroupUnreachableError
        if no member answers before the deadline.
        """
        return await self._admin().metadata()

    async def append(self, body: bytes, *, deadline_s: float | None = None) -> Appended:
        """Append one entry and return its position once a quorum has stored it.

        Raises OutcomeUnknownError if the entry may or may not be in the log; RefusedError or
        GroupUnreachableError if it is not in the log and never will be.
        """
        answer = await self._require_session().append(body, deadline_s)
        assert isinstance(answer, AppendEntryResponse)
        return Appended(index=answer.index, term=answer.term, pos=answer.pos)

    async def append_batch(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> list[Outcome]:
        """Append up to BATCH_MAX bodies concurrently and return one outcome for each.

        A failed append does not raise; its outcome describes the failure. Raises TypeError if a
        body is not bytes, and ValueError if there are more than BATCH_MAX bodies or IN_FLIGHT_BYTES
        bytes: `append_all` takes any number.
        """
        check_batch_size(bodies, BATCH_MAX, IN_FLIGHT_BYTES)
        outcomes = self._stream(bodies, BATCH_MAX, deadline_s)
        async with self._require_session().batch_slots, aclosing(outcomes):
            return [outcome async for outcome in outcomes]

    def append_all(
        self, bodies: Bodies, *, in_flight: int = IN_FLIGHT, deadline_s: float | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Append many bodies and yield one outcome for each, in the order of the bodies.

        At most `in_flight` appends are outstanding at a time. Indexes follow the order of the
        bodies only if nothing is resent; Java servers reorder pipelined appends even then. A
        failed append does not raise; its outcome describes the failure.
        """
        arguments.check_int(in_flight, "in_flight", 1, IN_FLIGHT_MAX)
        return self._stream(check_bodies(bodies), in_flight, deadline_s)

    def append_in_order(
        self, bodies: Sequence[bytes], *, deadline_s: float | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Append bodies one request after another; yield outcomes up to the first failure.

        So the entries have the order of the bodies. `deadline_s` applies to each request.
        """
        return append_in_order(self._require_session(), bodies, deadline_s)

    async def get(self, index: int, *, deadline_s: float | None = None) -> DLedgerEntry:
        """Read one entry.

        Raises NoEntryError if the log does not have it, ValueError or TypeError for no index.
        """
        check_index(index, "index")
        return await missing.entry(self._reader(deadline_s), index)

    def get_range(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[DLedgerEntry, None]:
        """Read `first`..`last` in order, or to the end of the log. None if last is first - 1."""
        check_range(first, last)
        return missing.entries(self._reader(deadline_s), first, last)

    def read_batches(
        self, first: int, last: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[EntryBatch, None]:
        """Read entries in batches of up to 1 MiB, the fastest way to read many."""
        check_range(first, last)
        return self._reader(deadline_s).read_batches(first, last)

    def tail(
        self, first: int | None = None, *, deadline_s: float | None = None
    ) -> AsyncGenerator[DLedgerEntry, None]:
        """Read the entries from `first` on, or those appended from now on, forever.

        This project's servers hold the request until the next entry is committed, so each entry
        arrives immediately. Java servers are polled 2 to 50 times a second and return entries that
        are not committed yet. Raises NoEntryError if the log begins after the next entry, and
        GroupUnreachableError if no leader is found before the deadline.
        """
        if first is not None:
            check_index(first, "first")
        return tail(self._reader(deadline_s), first, asyncio.sleep)

    async def bounds(self, *, deadline_s: float | None = None) -> LogBounds:
        """Return the first and the last index that can be read at the member that answers."""
        return await bounds(self._reader(deadline_s))

    async def set_register(
        self, key: int, value: int, *, deadline_s: float | None = None
    ) -> Appended:
        """Append an entry that sets a register, with the same errors as `append`.

        Raises RefusedError, and appends nothing, unless the group runs the register state machine.
        Raises TypeError or ValueError unless key and value are signed 32-bit numbers.
        """
        body = await register.entry_that_sets(self._require_session(), key, value, deadline_s)
        return await self.append(body, deadline_s=deadline_s)

    async def read_register(self, key: int, *, deadline_s: float | None = None) -> int | None:
        """Read a register, or return None if it was never set.

        The value reflects every entry acknowledged before the call. Raises RefusedError if the
        group does not run the register state machine (Java servers never do), and
        GroupUnreachableError if no leader answers.
        """
        return await register.read(self._require_session(), key, deadline_s)

    async def register_producer(self, *, deadline_s: float | None = None) -> int:
        """Register a producer and return its id, for `resume_producer`.

        Raises RefusedError if the servers do not support idempotent appends; Java servers never do.
        """
        return await self._require_session().register_producer(deadline_s)

    async def resume_producer(self, producer: int, acknowledged: int = 0, sent: int = 0) -> None:
        """Number the appends of an idempotent client as the next ones of a registered producer.

        All appends up to the number `acknowledged` are acknowledged, and an earlier client may have
        sent those up to `sent`, at most `acknowledged` + 1024. The client keeps to this
        registration: if the group has forgotten it, appends end with OutcomeUnknownError or
        RefusedError. Call this before the first append.
        """
        check_index(producer, "producer")
        arguments.check_int(acknowledged, "acknowledged", 0, INDEX_MAX - WINDOW)
        arguments.check_int(sent, "sent", 0, acknowledged + WINDOW)
        self._require_session().resume_producer(producer, acknowledged, sent)

    async def transfer(
        self, transferee_id: str, *, term: int | None = None, deadline_s: float | None = None
    ) -> GroupMetadata:
        """Transfer leadership to a member and return the group with its new leader.

        `term` is the leader's term; only Java servers, which do not report it, need it. Raises
        RefusedError if the member does not exist, lags too far behind or did not take over in
        time, even when retried; OutcomeUnknownError if the response was lost and the member is
        not the leader yet, or if it took over and no member names it as the leader afterwards.
        """
        arguments.check_text(transferee_id, "transferee_id")
        if term is not None:
            arguments.check_int(term, "term", 0, INDEX_MAX)
        return await self._admin(deadline_s).transfer(transferee_id, term)

    async def membership(self, *, deadline_s: float | None = None) -> GroupMembership:
        """Ask the leader for the voters and learners. In Java groups every member is a voter."""
        return await self._admin(deadline_s).membership()

    async def change_membership(
        self, change: ChangeKind, member_id: str, *, deadline_s: float | None = None
    ) -> GroupMembership:
        """Change one member; return once a majority has stored the change.

        A change that is already in effect succeeds. The request is repeated until the deadline
        while another change is in progress, or while the learner to promote lags too far behind.
        Raises RefusedError if something else must be done first. OutcomeUnknownError leaves open
        whether the change is in the log or will be: repeat the call.
        """
        if not isinstance(change, ChangeKind):
            raise TypeError(f"change must be a ChangeKind, not {type(change).__name__}")
        arguments.check_text(member_id, "member_id")
        return await self._admin(deadline_s).change_membership(change, member_id)

    def _stream(
        self, bodies: Bodies, in_flight: int, deadline_s: float | None
    ) -> AsyncGenerator[Outcome, None]:
        session = self._require_session()
        spawn = session.tasks.spawn
        return append_stream(session, bodies, in_flight, IN_FLIGHT_BYTES, deadline_s, spawn)

    def _require_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("DLedgerClient was used outside its `async with` block")
        return self._session

    def _reader(self, deadline_s: float | None) -> LogReader:
        return LogReader(session=self._require_session(), group=self.group, deadline_s=deadline_s)

    def _admin(self, deadline_s: float | None = None) -> GroupAdmin:
        return GroupAdmin(
            session=self._require_session(),
            random=self._random,
            token=self._admin_token,
            deadline_s=deadline_s,
        )
