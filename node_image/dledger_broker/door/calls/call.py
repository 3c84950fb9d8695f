"""One request of a client, and how its answer is sent."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from dledger_broker.door.between_members.door_frames import PRESENCE, Way
from dledger_broker.door.between_members.door_numbers import Number
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.metrics import BrokerCounters
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.answers import encode_answer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.ext_fields import ExtFields, NoFields
from dledger_formats.rocketmq.json_bodies import JsonBody
from dledger_formats.rocketmq.requests import FORMS
from dledger_node.services.drafts import HOLD_S

_NO_FIELDS = NoFields()
_KNOWN = frozenset(map(int, RequestCode)) | {PRESENCE}
FieldsT = TypeVar("FieldsT", bound=ExtFields)


class Channel(Protocol):
    """Where answers to a client go: its connection, or the member that has passed its request on.

    The name is that of Netty and RocketMQ; the channel of an entry is something else.
    """

    reads_waiting: int
    """The number of reads that are not answered."""

    @property
    def born_host(self) -> bytes:
        """The client's address, as messages carry it."""

    def send(self, data: bytes) -> None:
        """Send frames."""

    def go_on(self) -> None:
        """Handle the requests that were put off."""


class PassedOnState(Protocol):
    """What became of a request that could not be served at once."""

    number: Number | None
    """The numbers of its messages."""
    is_stored: bool
    """Whether its messages are in the log."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether an earlier copy of its messages may be stored."""


class Door(Protocol):
    """The part that takes requests which this member may not be able to serve."""

    @property
    def counters(self) -> BrokerCounters:
        """The counters of answers."""

    def turned(self, call: "Call", way: Way) -> None:
        """Take back a request that this member could not serve as the leader."""

    def ended(self, call: "Call") -> None:
        """Record that a request that has waited is answered."""


class Call:
    """A request that is answered once, now or later."""

    __slots__ = ("arrived_s", "channel", "command", "door", "is_ended", "waiting")

    is_passed_on = False
    """Whether another member has passed it on."""

    def __init__(
        self, channel: Channel, command: RemotingCommand, door: Door, arrived_s: float
    ) -> None:
        """`arrived_s` is a time of the event loop."""
        self.channel = channel
        self.command = command
        self.door = door
        self.arrived_s = arrived_s
        self.waiting: PassedOnState | None = None
        """Set once the request has waited for a leader."""
        self.is_ended = False
        """Whether it is answered, or another call is answered in its place. Nothing more is sent
        then: a service may raise after it has answered, or answer after it has raised.
        """

    @property
    def counters(self) -> BrokerCounters:
        """The counters of answers."""
        return self.door.counters

    @property
    def number(self) -> Number | None:
        """The numbers of the messages; None if they have none."""
        return None if self.waiting is None else self.waiting.number

    @property
    def connection(self) -> BrokerConnection:
        """The client's own connection, for requests that are never passed on."""
        assert isinstance(self.channel, BrokerConnection)
        return self.channel

    def turned(self, way: Way) -> None:
        """Let another leader serve the request, or this one later: this member could not."""
        self.door.turned(self, way)

    def note_stored(self) -> None:
        """Record that its messages are in the log."""
        if self.waiting is not None:
            self.waiting.is_stored = True

    def check_age(self, now_s: float) -> None:
        """Raise RefusedError if the request is too old to be stored, as after a wait for a thread.

        Its client would get another answer before that of the quorum, and send the messages again.
        """
        if now_s >= self.arrived_s + HOLD_S:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the message is not stored: its turn did not come within {HOLD_S:g} s",
            )

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
        body: bytes | Sequence[bytes] = b"",
    ) -> bytes:
        """Count and encode the answer; empty for a one-way request, which gets none."""
        command = self.command
        if self.waiting is not None:
            self.door.ended(self)
        self.counters.requests[command.code if command.code in _KNOWN else 0, int(code)] += 1
        answer = b""
        if not command.is_oneway:
            answer = encode_answer(command.opaque, int(code), fields, remark=remark, body=body)
        self.is_ended = True  # only now: a client whose answer cannot be encoded gets another one
        return answer

    def answer(
        self,
        code: ResponseCode,
        fields: ExtFields = _NO_FIELDS,
        *,
        remark: str | None = None,
        body: bytes | Sequence[bytes] = b"",
    ) -> None:
        """Send the answer."""
        if not self.is_ended:
            self.channel.send(self.encoded(code, fields, remark=remark, body=body))

    def refuse(self, error: RefusedError) -> None:
        """Send a refusal."""
        if not self.is_ended:
            self.channel.send(self.encoded_refusal(error))

    def encoded_refusal(self, error: RefusedError) -> bytes:
        """Count and encode a refusal, unless an earlier copy of the request may have succeeded."""
        if self.waiting is not None and self.waiting.is_in_doubt:
            error = may_be_stored()
        return self.encoded(error.code, remark=error.remark)


def may_be_stored(doubt: str = "no quorum answered in time") -> RefusedError:
    """Return the refusal of a message whose outcome is not known; `doubt` says why."""
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"{doubt}; the message may be stored")
