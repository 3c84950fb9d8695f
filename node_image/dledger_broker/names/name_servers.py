"""Registration of this member at name servers: by itself, and again and again.

Each name server has a connection and a task of its own, so one that is down or slow holds up no
other. It forgets the member when the connection ends. A registration is repeated every 30 s and
after each change, and until it is answered: ever more seldom, up to every 30 s, while nothing
changes, also if a name server answers and then closes each connection. Serving clients never waits
for any of this.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger_broker.metrics import BrokerCounters
from dledger_broker.names import registration
from dledger_broker.names.registration import Standing
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.tables import Tables
from dledger_formats.net.dialing import dial, reason_of
from dledger_formats.protocol.frames import FrameDecoder, FrameError, RemotingCommand
from dledger_node.config import split_address
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)

REPEAT_S: Final = 30.0
STEADY_S: Final = 30.0
"""How old a connection must be for a registration over it to end the long pauses. One that ends
sooner counts as a failure, although the name server had answered.
"""
RETRY_S: Final = 0.5
"""The pause after the first failure; each further one doubles it, up to `REPEAT_S`."""
PAUSE_S: Final = 0.2
"""The shortest time between two registrations at a name server, however often topics change."""
DIAL_S: Final = 3.0
ANSWER_S: Final = 10.0
"""Java waits 24 s."""
LAST_ANSWER_S: Final = 1.0
"""How long the end of a member waits for a registration under way. A name server that handles it
after it has noticed the end of the connection keeps the member for 120 s.
"""
_SUCCESS: Final = 0


class RegistrationError(Exception):
    """A name server did not take a registration."""


class NameServers:
    """Keeps this member registered."""

    def __init__(
        self,
        settings: BrokerSettings,
        standing: Callable[[], Standing],
        tables: Callable[[], Tables],
        threads: ThreadPoolExecutor,
        counters: BrokerCounters,
    ) -> None:
        """`standing` and `tables` return what is to be told; a thread reads the tables."""
        self.settings = settings
        self.standing = standing
        self._tables = tables
        self._threads = threads
        self._told = standing()
        self._servers = [NameServer(address, self, counters) for address in settings.name_servers]
        self._tasks: list[asyncio.Task[None]] = []
        self._making = asyncio.Lock()
        self._made: tuple[object, bytes] | None = None
        """The last body, after what it was made for."""

    def start(self) -> None:
        """Register from now on."""
        for server in self._servers:
            task = asyncio.create_task(server.run(), name=f"the name server {server.address}")
            task.add_done_callback(_log_end)
            self._tasks.append(task)

    def close(self) -> None:
        """Register no longer; the name servers forget this member as the connections close."""
        for task in self._tasks:
            task.cancel()

    async def closed(self) -> None:
        """Return once all connections are closed, `LAST_ANSWER_S` after `close` at the latest."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def tick(self) -> None:
        """Tell the name servers soon what has changed."""
        if self._servers and (standing := self.standing()) != self._told:
            self._told = standing
            for server in self._servers:
                server.tell()

    async def topics(self, standing: Standing) -> bytes:
        """Return the body of a registration; a thread makes it, once for all name servers."""
        made_for = standing.term, standing.topics
        async with self._making:
            if self._made is None or self._made[0] != made_for:
                self._made = None
                body = await asyncio.get_running_loop().run_in_executor(
                    self._threads, registration.body, self.settings, standing, self._tables()
                )
                self._made = made_for, body
            return self._made[1]


def _log_end(task: asyncio.Task[None]) -> None:
    """Say that a registration has ended that nobody has cancelled."""
    if not task.cancelled():
        logger.error(
            "the registration at %s has ended because of an error in this program; restart the "
            "member to register it again",
            task.get_name(),
            exc_info=task.exception(),
        )


class Backoff:
    """How long to wait after each failure."""

    def __init__(self) -> None:
        self._next_s = RETRY_S

    def failed(self) -> float:
        """Return the seconds to wait now."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, REPEAT_S)
        return pause_s

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._next_s = RETRY_S


class NameServer:
    """One name server, and the connection to it."""

    def __init__(self, address: str, owner: NameServers, counters: BrokerCounters) -> None:
        self.address = address
        self._wake = asyncio.Event()
        """Set when there is something to tell, or the connection has ended."""
        self._has_news = False
        """Whether there is something to tell that the last attempt did not try to tell."""
        self._backoff = Backoff()
        self._owner = owner
        self._registered = counters.registered
        self._registered[address] = False
        self._problems = counters.registration_problems
        self._log = LineBudget()
        self._opaques = itertools.count(1)

    def tell(self) -> None:
        """Register soon, for there is something to tell."""
        self._has_news = True
        self._backoff.reset()
        self._wake.set()

    async def run(self) -> None:
        """Register, and connect again whenever the connection ends, until cancelled."""
        while True:
            try:
                await self._connect()
            except (OSError, RegistrationError, FrameError, ValueError) as error:
                reason = reason_of(error) or f"it did not accept within {DIAL_S:g} s"
                self._problems[self.address] = reason
                if (left_out := self._log.admit("failed")) is not None:
                    logger.warning(
                        "not registered at the name server %s: %s%s", self.address, reason, left_out
                    )
            except Exception as error:  # unexpected; yet the member must get registered again
                self._problems[self.address] = f"an error in this program: {error!r:.200}"
                if (left_out := self._log.admit("unexpected")) is not None:
                    logger.exception(
                        "not registered at the name server %s because of an error in this program; "
                        "trying again%s",
                        self.address,
                        left_out,
                    )
            await self._pause(self._backoff.failed())

    async def _pause(self, pause_s: float) -> None:
        """Wait for so long; for something to tell, wait no longer than `RETRY_S`."""
        try:
            async with asyncio.timeout(pause_s):
                await asyncio.sleep(RETRY_S)
                while not self._has_news:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass  # it is time

    async def _connect(self) -> None:
        """Connect, and register until the connection ends, or cannot be opened.

        Raises OSError, RegistrationError, FrameError, ValueError.
        """
        self._has_news = False
        link: NameServerLink | None = None
        try:
            host, port = split_address(self.address)
            async with asyncio.timeout(DIAL_S):
                _, link = await dial(lambda: NameServerLink(self._wake.set), host.strip("[]"), port)
            await self._keep_registered(link)
        except asyncio.CancelledError:
            if link is not None:
                await link.settle(LAST_ANSWER_S)
            raise
        finally:
            self._registered[self.address] = False
            if link is not None:
                link.abort()

    async def _keep_registered(self, link: "NameServerLink") -> None:
        """Register again and again. Raises RegistrationError once the connection has ended."""
        now_s = asyncio.get_running_loop().time
        begun_s = now_s()
        while True:
            self._wake.clear()
            self._has_news = False
            standing = self._owner.standing()
            topics = await self._owner.topics(standing)
            opaque = next(self._opaques)
            answer = await link.ask(
                registration.frame(self._owner.settings, standing, topics, opaque), opaque
            )
            if answer.code != _SUCCESS:
                raise RegistrationError(f"it answers {answer.code}: {(answer.remark or '')[:200]}")
            if now_s() - begun_s >= STEADY_S:
                self._backoff.reset()
            if not self._registered[self.address]:
                self._registered[self.address] = True
                self._problems.pop(self.address, None)
                logger.info("registered at the name server %s", self.address)
            await asyncio.sleep(PAUSE_S)
            if self._owner.standing() == standing:
                try:
                    async with asyncio.timeout(REPEAT_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue


class NameServerLink(asyncio.Protocol):
    """A connection to a name server, over which one request is under way at a time."""

    def __init__(self, ended: Callable[[], None]) -> None:
        """`ended` is called when the connection has ended."""
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._asked: tuple[int, asyncio.Future[RemotingCommand]] | None = None
        self._end: Exception | None = None

    async def ask(self, frame: bytes, opaque: int) -> RemotingCommand:
        """Send a request and return its answer. Raises RegistrationError or FrameError."""
        if self._end is not None:
            raise self._end
        assert self._transport is not None
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._asked = opaque, answer
        self._transport.write(frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(answer)  # `settle` may wait on
        except TimeoutError:
            answer.cancel()
            raise RegistrationError(f"it did not answer within {ANSWER_S:g} s") from None

    async def settle(self, within_s: float) -> None:
        """Wait for the answer to a request that is under way, or for the end of the connection."""
        if self._asked is not None and not self._asked[1].done():
            await asyncio.wait({self._asked[1]}, timeout=within_s)
            self._asked[1].cancel()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's has all methods

    def data_received(self, data: bytes) -> None:
        """Take the answer; whatever else a name server sends is ignored."""
        try:
            for command in self._decoder.feed(data):
                if self._asked is not None and self._asked[0] == command.opaque:
                    _, answer = self._asked
                    if not answer.done():  # else it came too late
                        answer.set_result(command)
        except FrameError as error:
            self._fail(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """End the request that is under way."""
        self._fail(RegistrationError("it closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._end = self._end or error
        self._ended()
        if self._asked is not None and not self._asked[1].done():
            self._asked[1].set_exception(self._end)
