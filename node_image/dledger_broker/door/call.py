"""One request of a client, and the way of its answer."""

from typing import TypeVar

from dledger_broker.door.connection import BrokerConnection
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.metrics import BrokerCounters
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.ext_fields import ExtFields, NoFields
from dledger_formats.rocketmq.json_bodies import JsonBody
from dledger_formats.rocketmq.requests import FORMS

_NO_FIELDS = NoFields()
_KNOWN = frozenset(map(int, RequestCode))
FieldsT = TypeVar("FieldsT", bound=ExtFields)


class Call:
    """A request that is answered once, now or later."""

    __slots__ = ("command", "counters", "line")

    def __init__(
        self, line: BrokerConnection, command: RemotingCommand, counters: BrokerCounters
    ) -> None:
        self.line = line
        self.command = command
        self.counters = counters

    def fields(self, kind: type[FieldsT]) -> FieldsT:
        """Read the ext fields. Raises FormatError."""
        return kind.from_ext(self.command.ext_fields)

    def body(self, kind: type[JsonBody]) -> JsonBody:
        """Read the JSON body. Raises FormatError."""
        assert FORMS[RequestCode(self.command.code)].body is kind
        return kind.from_json(self.command.body)

    def encoded(
        self,
        code: ResponseCode,
        fields: ExtFields = _NO_FIELDS,
        *,
        remark: str | None = None,
        body: bytes = b"",
    ) -> bytes:
        """Count and encode the answer; empty for a one-way request, which gets none."""
        command = self.command
        self.counters.requests[command.code if command.code in _KNOWN else 0, int(code)] += 1
        if command.is_oneway:
            return b""
        return encode_answer(command.opaque, int(code), fields, remark=remark, body=body)

    def answer(
        self,
        code: ResponseCode,
        fields: ExtFields = _NO_FIELDS,
        *,
        remark: str | None = None,
        body: bytes = b"",
    ) -> None:
        """Send the answer."""
        self.line.send(self.encoded(code, fields, remark=remark, body=body))

    def refuse(self, error: RefusedError) -> None:
        """Send a refusal."""
        self.answer(error.code, remark=error.remark)
