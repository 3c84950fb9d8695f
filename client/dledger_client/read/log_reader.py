"""Reading a group's log: one entry, a range, or waiting for the next entry."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from dledger_client.calls.call import FOLLOW, GET, READ_RANGE, CallKind
from dledger_client.cluster.arguments import check_seconds
from dledger_client.read.entry_batch import EntryBatch, entries_of
from dledger_client.read.range_reader import ANSWER_BYTES, RANGE_BYTES, read_batches
from dledger_client.session import Session
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.read_range import ReadRangeRequest, ReadRangeResponse
from dledger_formats.protocol.requests import GetEntriesRequest, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads the log of a session's group; `deadline_s` applies to each request."""

    session: Session
    group: str
    deadline_s: float | None

    def __post_init__(self) -> None:
        if self.deadline_s is not None:
            check_seconds(self.deadline_s, "deadline_s")

    async def get(self, index: int) -> DLedgerEntry:
        """Read one entry. Raises NoEntryError if the log does not contain it."""
        request = GetEntriesRequest(group=self.group, begin_index=index)
        return entries_of(await self.session.ask(GET, request, self.deadline_s), index)[0]

    def read_batches(self, first: int, last: int | None) -> AsyncGenerator[EntryBatch, None]:
        """Read the entries `first`..`last` in order, with several requests in flight."""
        session, deadline_s = self.session, self.deadline_s
        return read_batches(
            lambda begin: session.start_read_range(begin, last, RANGE_BYTES, deadline_s),
            lambda begin: session.start_get(begin, ANSWER_BYTES, deadline_s),
            first,
            last,
        )

    async def get_range(self, first: int, last: int | None) -> AsyncGenerator[DLedgerEntry, None]:
        """Read the entries of a range one by one."""
        async with aclosing(self.read_batches(first, last)) as batches:
            async for batch in batches:
                for entry in batch.entries():
                    yield entry

    async def follow_stored(self, begin_index: int) -> ReadRangeResponse:
        """Ask once for stored entries from `begin_index` on, and wait as `follow` does.

        Raises RefusedError with code UNSUPPORTED if the server does not support READ_RANGE.
        """
        request = ReadRangeRequest(
            group=self.group,
            begin_index=begin_index,
            max_size=RANGE_BYTES,
            wait_ms=round(self.wait_s * 1000),
        )
        answer = await self._ask_and_wait(READ_RANGE, request)
        assert isinstance(answer, ReadRangeResponse)
        return answer

    async def follow(self, begin_index: int) -> FollowResponse:
        """Ask once for entries from `begin_index` on; wait up to `follow_wait_s` for the first.

        Raises RefusedError with code UNSUPPORTED if the server does not support FOLLOW (Java
        servers do not).
        """
        request = FollowRequest(
            group=self.group,
            begin_index=begin_index,
            max_size=ANSWER_BYTES,
            wait_ms=round(self.wait_s * 1000),
        )
        answer = await self._ask_and_wait(FOLLOW, request)
        assert isinstance(answer, FollowResponse)
        return answer

    @property
    def wait_s(self) -> float:
        """How long the leader may wait for an entry: at most half of the deadline, so that an idle
        log is not mistaken for an unresponsive leader.
        """
        timing = self.session.timing
        deadline_s = timing.deadline_s if self.deadline_s is None else self.deadline_s
        return min(timing.follow_wait_s, deadline_s / 2)

    async def _ask_and_wait(self, kind: CallKind, request: Message) -> Message:
        """Send a request that the leader may hold until there is an entry."""
        answer_s = self.wait_s + self.session.timing.follow_margin_s
        return await self.session.ask(kind, request, self.deadline_s, answer_s=answer_s)
