"""The requests of one connection, handed to those who answer them."""

import time
from collections.abc import Callable, Mapping, Sequence

from dledger_broker.door.call import Call
from dledger_broker.door.connection import BrokerConnection
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.metrics import BrokerCounters
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_node.remoting.dispatch import Line
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.read_turns import READS_WAITING_MAX

Serve = Callable[[Call], None]
"""Answers a call, now or later. Raises FormatError and RefusedError."""


class BrokerRequests:
    """Handles the requests of all connections: it keeps nothing of one."""

    def __init__(self, services: Mapping[int, Serve], counters: BrokerCounters) -> None:
        """`services` has whoever answers a request, by its code."""
        self._services = services
        self._counters = counters

    def dispatch(
        self,
        commands: Sequence[RemotingCommand],
        line: Line,
        only_hello: Reason | None,
        until_s: float,
    ) -> None:
        """Handle commands in order, until too many reads wait, the client does not read its
        answers, or the time `until_s` has come. The first command is handled in any case.
        """
        assert isinstance(line, BrokerConnection)
        if only_hello is not None:
            line.cut(only_hello, "too many connections")
            return
        for number, command in enumerate(commands):
            held_up = line.unread_since_s is not None or line.reads_waiting >= READS_WAITING_MAX
            if held_up or (number and time.perf_counter() >= until_s):
                line.put_off(commands[number:])
                return
            if not command.is_response:
                self._serve(Call(line, command, self._counters))

    def _serve(self, call: Call) -> None:
        serve = self._services.get(call.command.code)
        if serve is None:
            remark = f"request code {call.command.code} is not supported"
            call.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            return
        try:
            serve(call)
        except RefusedError as error:
            call.refuse(error)
        except FormatError as error:
            call.answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
