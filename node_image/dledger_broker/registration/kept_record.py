"""One record at one name server, and the connection that keeps it there.

A name server drops a record when the connection ends over which it was last registered, but only
one record of each connection. So each record has a connection of its own.

A record that this member need not keep any longer is not repeated, but its connection stays: if no
other member has registered the same address since, the end of the connection would remove what
clients need.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Final, Protocol

from dledger_broker.registration import register_broker
from dledger_broker.registration.name_server_link import NameServerLink, RegistrationError
from dledger_broker.registration.register_broker import Standing
from dledger_broker.settings import BrokerSettings
from dledger_formats.net.dialing import dial, reason_of
from dledger_formats.peers import split_address
from dledger_formats.protocol.frames import FrameError
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)

REPEAT_S: Final = 30.0
STEADY_S: Final = 30.0
"""How old a connection must be for a registration over it to end the long pauses. A connection that
ends sooner counts as a failure, although the name server had answered; one that ends later is
replaced without a pause.
"""
RETRY_S: Final = 0.5
"""The pause after the first failure; each further one doubles it, up to `REPEAT_S`."""
UNREACHABLE_S: Final = 5.0
"""The longest pause while a name server accepts no connections. An attempt then costs it nothing,
and one that has started again has no routes until it is found.
"""
PAUSE_S: Final = 0.2
"""The shortest time between two registrations of a record, however often topics change."""
DIAL_S: Final = 3.0
LAST_ANSWER_S: Final = 1.0
"""How long a stopping member waits for a registration under way. If a name server handles it after
it has noticed the end of the connection, it keeps the member for 120 s.
"""
_SUCCESS: Final = 0


class Backoff:
    """How long to wait after each failure."""

    def __init__(self) -> None:
        self._next_s = RETRY_S

    def failed(self, most_s: float = REPEAT_S) -> float:
        """Return the seconds to wait now, `most_s` at most."""
        pause_s = min(self._next_s, most_s)
        self._next_s = min(2 * pause_s, most_s)
        return pause_s

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._next_s = RETRY_S


class RecordOwner(Protocol):
    """The owner of all records."""

    settings: BrokerSettings

    async def topics(self, standing: Standing) -> bytes:
        """Return the body of a registration."""


class KeptRecord:
    """A record, kept registered while it is wanted."""

    def __init__(
        self,
        what: str,
        server: str,
        owner: RecordOwner,
        wanted: Callable[[], Standing | None],
        changed: Callable[[], None],
    ) -> None:
        """`wanted` returns the record; `changed` is called when `is_registered` may differ."""
        self.what = what
        self.server = server
        self.seen = wanted()
        """The record that was wanted when it was last looked at."""
        self.is_registered = self.seen is None
        """Whether the last registration has succeeded, or none is needed."""
        self.problem = ""
        """Why the last registration has failed, in words."""
        self._owner = owner
        self._wanted = wanted
        self._changed = changed
        self._wake = asyncio.Event()
        """Set when there is a change to register, or the connection has ended."""
        self._has_news = False
        """Whether there is a change that the last attempt did not try to register."""
        self._backoff = Backoff()
        self._log = LineBudget()
        self._opaques = itertools.count(1)

    def tell(self) -> None:
        """Register soon, since there is a change to register."""
        self._has_news = True
        self._backoff.reset()
        self._wake.set()

    async def run(self) -> None:
        """Register, and connect again whenever the connection ends, until cancelled."""
        while True:
            while self._look() is None:
                self._set_registered()
                self._wake.clear()
                await self._wake.wait()
            longest_s = REPEAT_S
            try:
                await self._connect()
            except (OSError, RegistrationError, FrameError, ValueError) as error:
                if isinstance(error, OSError):
                    longest_s = UNREACHABLE_S
                self._failed(reason_of(error) or f"it did not accept within {DIAL_S:g} s")
                if (left_out := self._log.admit("failed")) is not None:
                    logger.warning(
                        "%s is not registered at the name server %s: %s%s",
                        self.what, self.server, self.problem, left_out,
                    )  # fmt: skip
            except Exception as error:  # unexpected; yet the member must get registered again
                self._failed(f"an error in this program: {error!r:.200}")
                if (left_out := self._log.admit("unexpected")) is not None:
                    logger.exception(
                        "%s is not registered at the name server %s because of an error in this "
                        "program; trying again%s",
                        self.what, self.server, left_out,
                    )  # fmt: skip
            else:
                continue
            await self._pause(self._backoff.failed(longest_s))

    def _look(self) -> Standing | None:
        """Return the record that is wanted now."""
        self.seen = self._wanted()
        return self.seen

    def _failed(self, reason: str) -> None:
        self.problem, self.is_registered = reason, False
        self._changed()

    def _succeeded(self) -> None:
        if not self.is_registered:
            logger.info("%s is registered at the name server %s", self.what, self.server)
        self._set_registered()

    def _set_registered(self) -> None:
        """Show that the last registration has succeeded, or that none is needed."""
        self.problem, self.is_registered = "", True
        self._changed()

    async def _pause(self, pause_s: float) -> None:
        """Wait for `pause_s`; if there is a change to register, wait no longer than `RETRY_S`."""
        try:
            async with asyncio.timeout(pause_s):
                await asyncio.sleep(RETRY_S)
                while not self._has_news:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass  # it is time

    async def _connect(self) -> None:
        """Connect, and keep the record registered; return when another connection is needed.

        Raises OSError if it accepts no connection; RegistrationError, FrameError, ValueError.
        """
        self._has_news = False
        link: NameServerLink | None = None
        try:
            host, port = split_address(self.server)
            async with asyncio.timeout(DIAL_S):
                _, link = await dial(lambda: NameServerLink(self._wake.set), host, port)
            await self._keep_registered(link)
        except asyncio.CancelledError:
            if link is not None:
                await link.settle(LAST_ANSWER_S)
            self.is_registered = False
            self._changed()
            raise
        finally:
            if link is not None:
                link.abort()

    async def _keep_registered(self, link: NameServerLink) -> None:
        """Register repeatedly, until the record needs another connection.

        Raises RegistrationError once the connection has ended.
        """
        now_s = asyncio.get_running_loop().time
        begun_s = now_s()
        address: str | None = None
        while True:
            self._wake.clear()
            self._has_news = False
            standing = self._look()
            if standing is None:
                self._set_registered()
                if link.has_ended:
                    return
                await self._wake.wait()
                continue
            if address not in (None, standing.address):
                return  # it would be a second record of this connection
            if link.has_ended and now_s() - begun_s >= STEADY_S:
                return  # the name server has dropped the record, and may be asked at once
            address = standing.address
            await self._register(link, standing)
            if now_s() - begun_s >= STEADY_S:
                self._backoff.reset()
            self._succeeded()
            await asyncio.sleep(PAUSE_S)
            if self._look() == standing:
                try:
                    async with asyncio.timeout(REPEAT_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _register(self, link: NameServerLink, standing: Standing) -> None:
        topics = await self._owner.topics(standing)
        opaque = next(self._opaques)
        answer = await link.ask(
            register_broker.frame(self._owner.settings, standing, topics, opaque), opaque
        )
        if answer.code != _SUCCESS:
            raise RegistrationError(f"it answers {answer.code}: {(answer.remark or '')[:200]}")
