"""Reading with one deadline for each request: an entry, a range, and what is not there yet."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from dledger_client.calls.call import FOLLOW, GET
from dledger_client.read.range_reader import ANSWER_BYTES, entries_of, read_range
from dledger_client.session import Session
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.requests import DLedgerEntry, GetEntriesRequest

WAY_S: Final = 0.25
"""What an answer may take beyond the time that the server is to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads the log of a session's group."""

    session: Session
    group: str
    deadline_s: float | None

    async def get(self, index: int) -> DLedgerEntry:
        """Read one entry; NoEntryError when there is none."""
        request = GetEntriesRequest(group=self.group, begin_index=index)
        return entries_of(await self.session.ask(GET, request, self.deadline_s), index)[0]

    def get_range(self, first: int, last: int | None) -> AsyncGenerator[DLedgerEntry, None]:
        """Read entries in order, with several requests ahead."""
        return read_range(
            lambda begin: self.session.start_get(begin, ANSWER_BYTES, self.deadline_s), first, last
        )

    async def follow(self, begin_index: int) -> FollowResponse:
        """Ask once for entries from `begin_index` on, and wait for one up to `follow_wait_s`.

        RefusedError with UNSUPPORTED when the server does not know the request, as Java's.
        """
        wait_s = self.session.timing.follow_wait_s
        request = FollowRequest(
            group=self.group,
            begin_index=begin_index,
            max_size=ANSWER_BYTES,
            wait_ms=round(wait_s * 1000),
        )
        answer = await self.session.ask(FOLLOW, request, self.deadline_s, answer_s=wait_s + WAY_S)
        assert isinstance(answer, FollowResponse)
        return answer
