"""Registration of this member at name servers, repeated in the background.

Each record at each name server has a connection and a task of its own, so a name server that is
down or slow delays no other. A registration is repeated every 30 s and after each change. Until it
is answered, it is tried again after growing pauses of up to 30 s, while nothing changes; the same
holds if a name server answers and then closes each connection. If it accepts none, the pauses grow
to 5 s. Serving clients never waits for any of this.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dledger_broker.metrics import BrokerCounters
from dledger_broker.registration import register_broker
from dledger_broker.registration.kept_record import KeptRecord
from dledger_broker.registration.register_broker import Standing, Standings
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.tables import Tables

logger = logging.getLogger(__name__)


class NameServers:
    """Keeps this member registered, and the address of all members if that is its turn."""

    def __init__(
        self,
        settings: BrokerSettings,
        standings: Callable[[], Standings],
        tables: Callable[[], Tables],
        threads: ThreadPoolExecutor,
        counters: BrokerCounters,
    ) -> None:
        """`standings` and `tables` return what is to be registered; a thread reads the tables."""
        self.settings = settings
        self._standings = standings
        self._tables = tables
        self._threads = threads
        self._counters = counters
        self._is_leaving = False
        self._own: dict[str, KeptRecord] = {}
        self._group: dict[str, KeptRecord] = {}
        """Both by the name server's address."""
        for server in settings.name_servers:
            changed = partial(self._show, server)
            if settings.register_members:
                self._own[server] = KeptRecord(
                    "this member", server, self, lambda: self._standings().own, changed
                )
            if settings.group_address:
                self._group[server] = KeptRecord(
                    "the address of the group", server, self, self._group_standing, changed
                )
            counters.registered[server] = False
        self._tasks: dict[KeptRecord, asyncio.Task[None]] = {}
        self._making = asyncio.Lock()
        self._made: tuple[object, bytes] | None = None
        """What the last body was made for, and that body."""

    def start(self) -> None:
        """Register from now on."""
        for record in (*self._own.values(), *self._group.values()):
            task = asyncio.create_task(record.run(), name=f"{record.what} at {record.server}")
            task.add_done_callback(_log_end)
            self._tasks[record] = task

    def leave(self) -> None:
        """Let the name servers forget this member, but not yet the address of the group.

        The next leader registers that, and its connection then keeps the record.
        """
        self._is_leaving = True
        for record in self._own.values():
            if record in self._tasks:
                self._tasks[record].cancel()

    def close(self) -> None:
        """Stop registering; name servers forget what they know as the connections close."""
        for task in self._tasks.values():
            if not task.cancelling():  # `leave` lets a registration under way end
                task.cancel()

    async def closed(self) -> None:
        """Return once all connections are closed, `LAST_ANSWER_S` after `close` at the latest."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def tick(self) -> None:
        """Register soon what has changed since each record was last looked at.

        A record may have been looked at between two ticks, while it was not wanted for a moment.
        """
        if not self._tasks:
            return
        own, group = self._standings().own, self._group_standing()
        _tell(record for record in self._own.values() if record.seen != own)
        _tell(record for record in self._group.values() if record.seen != group)

    def repeat_group(self) -> None:
        """Register the address of the group again at once, if that is this member's turn.

        The member that has registered it last may be gone, and its record with it.
        """
        _tell(self._group.values())

    def _group_standing(self) -> Standing | None:
        return None if self._is_leaving else self._standings().group

    def _show(self, server: str) -> None:
        """Update the metrics and the status of a name server."""
        records = [kept[server] for kept in (self._own, self._group) if server in kept]
        self._counters.registered[server] = all(record.is_registered for record in records)
        problems = self._counters.registration_problems
        problems[server] = next((record.problem for record in records if record.problem), "")
        if not problems[server]:
            del problems[server]

    async def topics(self, standing: Standing) -> bytes:
        """Return the body of a registration; a thread makes it, once for all name servers."""
        made_for = standing.term, standing.topics
        async with self._making:
            if self._made is None or self._made[0] != made_for:
                self._made = None
                body = await asyncio.get_running_loop().run_in_executor(
                    self._threads, register_broker.body, self.settings, standing, self._tables()
                )
                self._made = made_for, body
            return self._made[1]


def _tell(records: Iterable[KeptRecord]) -> None:
    for record in records:
        record.tell()


def _log_end(task: asyncio.Task[None]) -> None:
    """Log the end of a registration that was not cancelled."""
    if not task.cancelled():
        logger.error(
            "the registration of %s has ended because of an error in this program; restart the "
            "member to register it again",
            task.get_name(),
            exc_info=task.exception(),
        )
