"""Sends reads to a member drawn at random, which need not be the leader.

The client stays with that member while it answers, so that stale reads do not go back in time. So
only the reads of several clients are spread over the members. If the member does not or cannot
answer, another one is drawn; the leader gets the reads that no other member answers.
"""

import asyncio
import enum
from collections.abc import Callable
from typing import Final

from dledger_client.calls.call import Call
from dledger_client.calls.call_queue import CallQueue
from dledger_client.calls.dispatcher import EXPIRY_INTERVAL_S, Dispatcher
from dledger_client.calls.verdicts import Verdict, judge, success
from dledger_client.cluster.addresses import ServerAddress
from dledger_client.cluster.connection import Connection
from dledger_client.errors import (
    ConnectionLostError,
    GroupUnreachableError,
    RefusedError,
    last_errors,
)
from dledger_client.tasks import Spawn
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.frames import RemotingCommand

AVOID_S: Final = 3.0
"""How long a member that did not answer a read gets no further reads."""
REFUSED_S: Final = 0.5
"""How long a member that refused a read gets none; it may not know the next leader yet."""


class ReadFrom(enum.Enum):
    """Which members a client reads from."""

    LEADER = "leader"
    FOLLOWERS = "followers"
    """Any member but the leader, which gets the reads only if no other answers."""
    ANY = "any"


class MemberReads:
    """Owns the reads that any member may answer; implements CallHandler.

    A call whose member failed is sent to another one with the same request, so a reader gets each
    entry once and in order.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        read_from: ReadFrom,
        spawn: Spawn,
        random: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._members = dispatcher.members
        self._wants_followers = read_from is ReadFrom.FOLLOWERS
        self._spawn = spawn
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        """The connection to the member that gets the reads; None while none is chosen."""
        self._waiting = CallQueue()
        self._choice: asyncio.Task[None] | None = None
        self._avoided: dict[tuple[str, int], float] = {}
        """Time until which a member gets no read, by host and port."""
        self._leader_until_s = 0.0
        """Time until which the leader gets all reads, since no other member answers."""
        dispatcher.on_stall = self._stalled

    @property
    def any_waits(self) -> bool:
        """Whether a read waits until a member is chosen."""
        return bool(self._waiting)

    def submit(self, call: Call) -> None:
        """Send a call now, or as soon as a member is chosen."""
        self._dispatcher.record_start(call)
        self._forward(call)

    def close(self) -> None:
        """End the calls that wait for a member."""
        if self._choice is not None:
            self._choice.cancel()
        for call in self._waiting.take_all():
            self._dispatcher.end(call, GroupUnreachableError("the client was closed"))

    # CallHandler

    def answered(self, call: Call, command: RemotingCommand) -> None:
        """Process a member's response: end the call, or send it to another member."""
        connection = call.connection
        assert connection is not None
        response = success(call.kind, command)
        if response is not None:
            leads = response.leader_id is not None and response.leader_id == connection.member_id
            if leads and self._wants_followers and self._connection is connection:
                self._connection = None  # this member was elected; choose again
            self._dispatcher.succeeded(call, response)
            return
        judgement = judge(call.kind, command)
        # A member may have removed entries that the leader still has.
        is_removed = judgement.code is DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        if judgement.verdict in (Verdict.DONE, Verdict.REFUSED) and not is_removed:
            self._dispatcher.answered(call, command)
        else:
            call.last_code, call.problem = None, f"{connection}: {judgement.reason}"
            self._send_elsewhere(call, connection, REFUSED_S)

    def lost(self, call: Call, error: ConnectionLostError) -> None:
        """Send a call without an answer to another member: a read may be repeated."""
        assert call.connection is not None
        call.last_code, call.problem = None, str(error)
        self._send_elsewhere(call, call.connection, AVOID_S)

    def cancelled(self, call: Call) -> None:
        """Do nothing: a cancelled call ends when it would be sent, or with its response."""

    # Sending

    def _forward(self, call: Call) -> None:
        connection = self._connection
        if call.answer.done():
            self._dispatcher.end(call, GroupUnreachableError("cancelled"))
        elif connection is not None and connection.is_open:
            call.handler = self
            self._dispatcher.send(call, connection, self._loop.time())
        elif self._loop.time() < self._leader_until_s or self._dispatcher.is_closed:
            self._send_to_leader(call)
        else:
            self._connection = None
            self._waiting.append(call)
            if self._choice is None:
                self._choice = self._spawn(self._choose())

    def _send_to_leader(self, call: Call) -> None:
        call.handler = self._dispatcher
        self._dispatcher.forward(call)

    def _send_elsewhere(self, call: Call, connection: Connection, avoid_s: float) -> None:
        address = connection.address
        self._avoided[address.host, address.port] = self._loop.time() + avoid_s
        if self._connection is connection:
            self._connection = None
        self._forward(call)

    def _stalled(self, connection: Connection) -> None:
        """Leave a member that does not respond. The dispatcher handles a stalled leader."""
        if connection is self._connection and connection is not self._dispatcher.leader:
            connection.abort(f"{connection} stopped responding")

    # Choosing a member

    async def _choose(self) -> None:
        """Choose a member for the waiting calls; without one, the leader gets them."""
        find = self._spawn(self._find())
        try:
            while not find.done():
                await asyncio.wait({find}, timeout=EXPIRY_INTERVAL_S)
                self._dispatcher.expire(self._waiting, self._end_overdue)
            found = find.result()
            if found is None or not self._members.may_use(found):
                self._leader_until_s = self._loop.time() + REFUSED_S
            else:
                self._members.use(found)
                self._connection = found
        finally:
            find.cancel()
            self._choice = None
            for call in self._waiting.take_all():
                self._forward(call)

    def _end_overdue(self, call: Call) -> None:
        group, waited_s = self._members.group, self._loop.time() - call.began_s
        reasons = dict.fromkeys(filter(None, (call.problem, *self._members.problems)))
        message = f"no member of group {group} answered within {waited_s:.1f} s"
        error = GroupUnreachableError(f"{message}; {last_errors(list(reasons))}")
        self._dispatcher.end(call, error)

    async def _find(self) -> Connection | None:
        """Return the connection to the first member, in a random order, that may get the reads.

        While a member does not answer for `Timing.stall_s`, others are asked too.
        """
        asked: set[tuple[str, int]] = set()
        asking: dict[asyncio.Task[Connection | None], None] = {}  # a set in the order of asking
        try:
            while True:
                address = self._next_address(asked)
                if address is not None:
                    asked.add((address.host, address.port))
                    asking[self._spawn(self._ask(address, asked))] = None
                elif not asking:
                    return None
                done, _ = await asyncio.wait(
                    asking,
                    timeout=None if address is None else self._members.timing.stall_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in [one for one in asking if one in done]:
                    del asking[task]
                    if (connection := task.result()) is not None:
                        return connection
        finally:
            for task in asking:
                task.cancel()

    async def _ask(self, address: ServerAddress, asked: set[tuple[str, int]]) -> Connection | None:
        """Return the connection to a member if it may get the reads.

        The first answer names all members. Forget then which ones were asked, so that one of all
        members is drawn.
        """
        knew_peers = bool(self._members.peers)
        try:
            connection, response = await self._members.metadata(address)
        except (ConnectionLostError, RefusedError):
            self._avoided[address.host, address.port] = self._loop.time() + AVOID_S
            return None
        if self._members.follow_leader and not knew_peers and self._members.peers:
            asked.clear()
            return None
        leads = response.leader_id == connection.member_id
        return None if self._wants_followers and leads else connection

    def _next_address(self, asked: set[tuple[str, int]]) -> ServerAddress | None:
        now_s, members = self._loop.time(), self._members
        known = members.peers.values() if members.follow_leader else ()
        some = [
            address
            for address in known or members.servers
            if (address.host, address.port) not in asked
            and self._avoided.get((address.host, address.port), 0.0) <= now_s
        ]
        return some[int(self._random() * len(some))] if some else None
