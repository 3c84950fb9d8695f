"""A request that cannot be served at once, from its arrival to its end."""

from collections.abc import Hashable
from typing import Final

from dledger_broker.door.between_members.door_frames import DoorRequest, Way, request_bytes
from dledger_broker.door.between_members.door_numbers import COUNT_MAX, Number
from dledger_broker.door.between_members.refusals import NO_QUORUM, SILENT, UNANSWERED
from dledger_broker.door.calls.call import Call, may_be_stored
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.services import drafts

HOLD_S: Final = drafts.HOLD_S
"""How long a request waits for a leader. Clients give up after 3 s, and try again before."""
DOUBT_S: Final = drafts.WAIT_S
"""How long an answer may take if the request may have taken effect."""
REPEAT_MIN_S: Final = 0.05
REPEAT_MAX_S: Final = 0.4
"""The shortest and the longest pause between copies that a leader does not take. The longest is
short enough that one of the last copies learns of a commit that came just in time.
"""
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_BATCH_FLAGS: Final = {
    int(RequestCode.SEND_MESSAGE): "batch",
    int(RequestCode.SEND_MESSAGE_V2): "m",
}
"""The ext field that says whether a send is a batch."""
SENDS: Final = frozenset((*_BATCH_FLAGS, _BATCH))
STORING: Final = SENDS | {int(RequestCode.CONSUMER_SEND_MSG_BACK)}
"""Requests that store messages, so that a copy of one has an effect of its own."""


class WaitingRequest:
    """A request from its arrival to its answer, if it cannot be served at once."""

    __slots__ = (
        "call", "client", "count", "is_stored", "may_be_stored", "next_s", "number", "order",
        "pause_s", "sent_s", "size", "thing",
    )  # fmt: skip

    def __init__(self, call: Call, order: int) -> None:
        """`order` is larger than those of the requests that came before."""
        self.call = call
        self.order = order
        self.count = numbers_of(call)
        """How many numbers it needs; 0 for a request that may be repeated without them."""
        self.client = call.channel.born_host
        """The client's address."""
        self.size = request_bytes(call.command.body, call.command.ext_fields)
        self.thing: Hashable = None
        """What it is about, if its order matters (`turns`)."""
        self.number: Number | None = None
        self.sent_s = -1.0
        """When its last copy was sent; below 0 before the first one."""
        self.next_s = self.pause_s = 0.0
        """When the next copy may be sent, and the pause if that comes back, too."""
        self.is_stored = False
        """Whether its messages are in the log."""
        self.may_be_stored = False
        """Whether a copy was sent whose outcome is not known."""

    def pause(self, now_s: float) -> None:
        """Put the next copy off: not at all the first time, then for twice as long each time."""
        self.next_s = now_s + self.pause_s
        self.pause_s = min(max(2 * self.pause_s, REPEAT_MIN_S), REPEAT_MAX_S)

    def is_late(self, now_s: float) -> bool:
        """Return whether its time is up."""
        limit_s = DOUBT_S if self.may_be_stored else HOLD_S
        return now_s >= self.call.arrived_s + limit_s

    @property
    def place(self) -> tuple[float, int]:
        """The request's place among those that came before and after it.

        A request that this member began to serve as the leader got its order later than it arrived.
        """
        return self.call.arrived_s, self.order

    @property
    def needs_number(self) -> bool:
        """Whether it must get numbers before it is sent."""
        return self.number is None and 0 < self.count <= COUNT_MAX

    @property
    def is_in_doubt(self) -> bool:
        """Whether an earlier copy of its messages may be stored."""
        return self.may_be_stored and self.count > 0

    @property
    def is_lost(self) -> bool:
        """Whether the outcome can never be known, because the request had no number."""
        return self.is_in_doubt and self.number is None

    def request(self, request_number: int) -> DoorRequest:
        """Return what is sent to the leader, under this number."""
        command = self.call.command
        producer, sequence, count = self.number or (-1, 0, 0)
        return DoorRequest(
            request_number, command.code, command.opaque, command.flag, command.version,
            command.ext_fields, command.body, self.client, producer, sequence, count,
        )  # fmt: skip

    def end(self, refused: RefusedError) -> bytes:
        """Return the answer without the leader: `refused`, unless the request may take effect.

        The answer is empty if the client wants none, or if another member answers the client.
        """
        call = self.call
        call.waiting = None
        if call.is_passed_on:
            call.turned(Way.IN_DOUBT if self.is_in_doubt else Way.NOT_STORED)
            return b""
        if self.is_in_doubt:
            refused = may_be_stored(SILENT if refused is UNANSWERED else NO_QUORUM)
        return call.encoded_refusal(refused)


def numbers_of(call: Call) -> int:
    """Return how many numbers a request needs: one for each message that it stores.

    For a batch of more than COUNT_MAX messages, which gets none, any larger number is returned.
    """
    command = call.command
    if command.code not in STORING:
        return 0
    flag = (command.ext_fields or {}).get(_BATCH_FLAGS.get(command.code, ""), "")
    if command.code != _BATCH and flag.lower() != "true":
        return 1
    try:
        return message_batch.count(command.body, enough=COUNT_MAX + 1)
    except FormatError:
        return 1  # the leader refuses it


def refuse(call: Call, remark: str) -> None:
    """End a request that had no effect."""
    if call.is_passed_on:
        call.turned(Way.NOT_STORED)
    else:
        call.refuse(RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, remark))


def in_doubt(call: Call) -> None:
    """End a request that may have taken effect."""
    if call.is_passed_on:
        call.turned(Way.IN_DOUBT)
        return
    call.refuse(may_be_stored())
