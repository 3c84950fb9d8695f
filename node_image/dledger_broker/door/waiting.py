"""A request that cannot be served at once, from its arrival to its end."""

from typing import Final

from dledger_broker.door.call import Call, may_be_stored
from dledger_broker.door.door_frames import Way
from dledger_broker.door.door_numbers import Number
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.services import drafts

HOLD_S: Final = drafts.HOLD_S
"""How long a request waits for a leader. Clients give up after 3 s, and try again before."""
DOUBT_S: Final = drafts.WAIT_S
"""How long the answer of a request may take that may have had its effect."""
REQUEST_BYTES: Final = 512
"""What a waiting request counts beside its body."""
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
STORING: Final = frozenset(
    map(
        int,
        (
            RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK,
        ),
    )
)  # fmt: skip
"""Requests that store messages, so that a copy of one has an effect of its own."""


class Waiting:
    """A request from its arrival to its answer, if it cannot be served at once."""

    __slots__ = ("call", "count", "is_stored", "may_be_stored", "number", "order", "size")

    def __init__(self, call: Call, order: int) -> None:
        """`order` is larger than those of the requests that came before."""
        self.call = call
        self.order = order
        self.count = numbers_of(call)
        """How many numbers it needs; 0 for a request that may be repeated without."""
        self.size = len(call.command.body) + REQUEST_BYTES
        self.number: Number | None = None
        self.is_stored = False
        """Whether its messages are in the log."""
        self.may_be_stored = False
        """Whether a copy is, or was, on its way whose end is not known."""

    def is_late(self, now_s: float) -> bool:
        """Tell whether its time is up."""
        limit_s = DOUBT_S if self.may_be_stored else HOLD_S
        return now_s >= self.call.arrived_s + limit_s

    @property
    def is_in_doubt(self) -> bool:
        """Whether an earlier copy of its messages may be stored."""
        return self.may_be_stored and self.count > 0

    @property
    def is_lost(self) -> bool:
        """Whether its end can never be known, because it had no number."""
        return self.is_in_doubt and self.number is None

    def end_late(self) -> None:
        """Answer without the leader."""
        call = self.call
        call.waiting = None
        if self.is_in_doubt:
            in_doubt(call)
        else:
            refuse(call, "no leader took the request in time; send it again")


def numbers_of(call: Call) -> int:
    """Return how many numbers a request needs: one for each message that it stores."""
    command = call.command
    if command.code not in STORING:
        return 0
    ext = command.ext_fields or {}
    if command.code != _BATCH and "true" not in (ext.get("m"), ext.get("batch")):
        return 1
    try:
        return len(message_batch.decode(command.body))
    except FormatError:
        return 1  # the leader refuses it


def refuse(call: Call, remark: str) -> None:
    """End a request that had no effect."""
    if call.is_passed_on:
        call.turned(Way.NOT_STORED)
    else:
        call.refuse(RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, remark))


def in_doubt(call: Call) -> None:
    """End a request that may have had its effect."""
    if call.is_passed_on:
        call.turned(Way.IN_DOUBT)
        return
    call.refuse(may_be_stored())
