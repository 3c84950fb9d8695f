"""The dispatch of requests to the parts that answer them."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from dledger_broker.door.calls.call import Call, Door
from dledger_broker.door.calls.failures import answered
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.remoting.connection_views import RequestConnection
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.read_turns import READS_WAITING_MAX

PULLS: Final = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})
"""Requests that may be held for long. A pull that waits for anything but messages hurries by
itself.
"""

Serve = Callable[[Call], None]
"""Answers a call, now or later. Raises FormatError and RefusedError."""


class Leaders(Door, Protocol):
    """The way to the leader."""

    def take(self, call: Call) -> None:
        """Serve a request that only the leader can serve, pass it on, or let it wait."""


class BrokerRequests:
    """Handles the requests of all connections, and keeps no state of any of them."""

    def __init__(
        self,
        services: Mapping[int, Serve],
        leaders: Mapping[int, Serve],
        members: Mapping[int, Serve],
        door: Leaders,
        hurry: Callable[[], None],
    ) -> None:
        """`services` has the service for each code, `leaders` those that only the leader offers.

        `members` has those that the leader offers to the other members, not to clients. `hurry` is
        called before each request that may have to wait: any but a pull of a client.
        """
        self._services = services
        self._leaders = leaders
        self._members = {**leaders, **members}
        self._door = door
        self._hurry = hurry
        self._goes_away = False
        self._now_s = asyncio.get_running_loop().time

    def go_away(self) -> None:
        """Answer GO_AWAY from now on, to clients that understand it."""
        self._goes_away = True

    def dispatch(
        self,
        commands: Sequence[RemotingCommand],
        connection: RequestConnection,
        only_hello: Reason | None,
        until_s: float,
    ) -> None:
        """Handle commands in order, until too many reads wait, the client does not read its
        answers, or the time `until_s` has come. The first command is handled in any case.
        """
        assert isinstance(connection, BrokerConnection)
        if only_hello is not None:
            connection.cut(only_hello, "too many connections")
            return
        now_s = self._now_s()
        for number, command in enumerate(commands):
            held_up = (
                connection.unread_since_s is not None
                or connection.reads_waiting >= READS_WAITING_MAX
            )
            if held_up or (number and time.perf_counter() >= until_s):
                connection.put_off(commands[number:])
                return
            if not command.is_response:
                connection.client_version = command.version
                call = Call(connection, command, self._door, now_s)
                if self._goes_away and connection.knows_go_away and not command.is_oneway:
                    call.answer(ResponseCode.GO_AWAY, remark="this member stops")
                elif command.code in self._leaders:
                    self._hurry()
                    self._door.take(call)
                else:
                    if command.code not in PULLS:
                        self._hurry()
                    _serve(call, self._services.get(command.code))

    def take_passed_on(self, call: Call) -> None:
        """Take a request that another member has passed on."""
        if call.command.code in self._members:
            self._hurry()
            self._door.take(call)
        else:
            _serve(call, None)

    def serve_as_leader(self, call: Call) -> None:
        """Serve a request that only the leader can serve; this member must lead."""
        _serve(call, self._members[call.command.code])


def _serve(call: Call, serve: Serve | None) -> None:
    if serve is None:
        remark = f"request code {call.command.code} is not supported"
        call.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        return
    answered(call, partial(serve, call))
