"""One request to the leader. Does no IO."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from dledger_client.cluster.connection import Connection
from dledger_client.errors import (
    ClientError,
    ConnectionLostError,
    GroupUnreachableError,
    NoEntryError,
    RefusedError,
)
from dledger_formats.protocol import append_batch, membership_change, producers
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.codes import (
    DLedgerResponseCode,
    RequestCode,
)
from dledger_formats.protocol.follow import FOLLOW as FOLLOW_CODE
from dledger_formats.protocol.follow import FollowResponse
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeMembershipResponse
from dledger_formats.protocol.producers import IdempotentBatchRequest, RegisterProducerResponse
from dledger_formats.protocol.read_range import READ_RANGE as READ_RANGE_CODE
from dledger_formats.protocol.read_range import ReadRangeResponse
from dledger_formats.protocol.register import READ_REGISTER as READ_REGISTER_CODE
from dledger_formats.protocol.register import ReadRegisterResponse
from dledger_formats.protocol.requests import (
    AppendEntryResponse,
    GetEntriesResponse,
    Message,
    MetadataResponse,
    Response,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallKind:
    """The properties that all calls of one kind share."""

    code: int
    decode: Callable[[bytes], Message]
    """Decodes the usual form of a response quickly; raises ValueError for any other form."""
    decode_any: Callable[[bytes], Response]
    """Decodes every form of a response; raises FormatError."""
    refusals: frozenset[DLedgerResponseCode] = frozenset()
    """Additional codes that mean REFUSED for this kind."""
    waits: frozenset[DLedgerResponseCode] = frozenset()
    """Additional codes that mean RETRY_LATER for this kind."""
    appends: bool = False
    encode: Callable[[Message, bool], bytes]
    """Encodes the body of a request; True encodes bytes as JSON arrays of numbers."""


def _as_json(request: Message, as_numbers: bool) -> bytes:
    return request.to_json(bytes_as_numbers=as_numbers)


def _as_batch(request: Message, _: bool) -> bytes:
    assert isinstance(request, AppendBatchRequest | IdempotentBatchRequest)
    return request.to_bytes()


def _kind(
    code: int,
    response_type: type[Response],
    refusals: Iterable[DLedgerResponseCode] = (),
    *,
    waits: Iterable[DLedgerResponseCode] = (),
    appends: bool = False,
    encode: Callable[[Message, bool], bytes] = _as_json,
) -> CallKind:
    return CallKind(
        code=code,
        decode=msgspec.json.Decoder(response_type).decode,
        decode_any=response_type.from_json,
        refusals=frozenset(refusals),
        waits=frozenset(waits),
        appends=appends,
        encode=encode,
    )


APPEND: Final = _kind(RequestCode.APPEND, AppendEntryResponse, appends=True)
APPEND_IDEMPOTENT: Final = _kind(producers.APPEND_IDEMPOTENT, AppendEntryResponse, appends=True)
APPEND_BATCH: Final = _kind(
    append_batch.APPEND_BATCH, AppendEntryResponse, appends=True, encode=_as_batch
)
APPEND_IDEMPOTENT_BATCH: Final = _kind(
    producers.APPEND_IDEMPOTENT_BATCH, AppendEntryResponse, appends=True, encode=_as_batch
)
REGISTER: Final = _kind(producers.REGISTER_PRODUCER, RegisterProducerResponse)
METADATA: Final = _kind(RequestCode.METADATA, MetadataResponse)
CHANGE_MEMBERSHIP: Final = _kind(
    membership_change.CHANGE_MEMBERSHIP,
    ChangeMembershipResponse,
    {
        DLedgerResponseCode.NO_SUCH_MEMBER,
        DLedgerResponseCode.LAST_VOTER,
        DLedgerResponseCode.QUORUM_AT_RISK,
        DLedgerResponseCode.TOO_MANY_MEMBERS,
    },
    waits={DLedgerResponseCode.MEMBERSHIP_CHANGING, DLedgerResponseCode.FALL_BEHIND_TOO_MUCH},
)
GET: Final = _kind(RequestCode.GET, GetEntriesResponse)
READ_RANGE: Final = CallKind(
    code=READ_RANGE_CODE,
    decode=ReadRangeResponse.from_bytes,
    decode_any=ReadRangeResponse.from_bytes,
    refusals=frozenset({DLedgerResponseCode.UNEXPECTED_ARGUMENT}),
    encode=_as_json,
)
READ_REGISTER: Final = _kind(READ_REGISTER_CODE, ReadRegisterResponse)
FOLLOW: Final = _kind(FOLLOW_CODE, FollowResponse)
TRANSFER: Final = _kind(
    RequestCode.LEADERSHIP_TRANSFER,
    LeadershipTransferResponse,
    {
        DLedgerResponseCode.EXPIRED_TERM,
        DLedgerResponseCode.INCONSISTENT_TERM,
        DLedgerResponseCode.INCONSISTENT_LEADER,
        DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
        DLedgerResponseCode.TAKE_LEADERSHIP_FAILED,
    },
)


CROWDED_S: Final = 1.0
"""How long a batch that is alone in flight is refused for lack of room before it is split."""
_SPLIT_CODES: Final = (DLedgerResponseCode.UNSUPPORTED, DLedgerResponseCode.SEQUENCES_NOT_NEW)


def must_be_split(call: "Call", answer: "Message | ClientError") -> bool:
    """Return whether a member refused a batch whose bodies it may accept one by one."""
    return (
        call.kind in (APPEND_BATCH, APPEND_IDEMPOTENT_BATCH)
        and isinstance(answer, RefusedError)
        and (answer.code in _SPLIT_CODES or bool(call.parts))
    )


class CallHandler(Protocol):
    """Sends calls and decides on the next step of each; implemented by Dispatcher."""

    def answered(self, call: "Call", command: RemotingCommand) -> None:
        """Process a member's response."""

    def lost(self, call: "Call", error: ConnectionLostError) -> None:
        """Process the failure of an attempt that received no response."""

    def cancelled(self, call: "Call") -> None:
        """Process the cancellation of a call by its caller."""


class Sequencer(Protocol):
    """Assigns sequences to idempotent appends; implemented by Producer."""

    def reregister(self, call: "Call") -> None:
        """Resend a call that had no effect under a new registration."""

    def split(self, call: "Call") -> None:
        """Send the bodies of a refused batch one by one, as `parts`, with the same sequences."""

    def ended(self, call: "Call") -> None:
        """Process the end of a call; no copy of it will be sent again."""


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A request, its attempts so far, and the future of its response."""

    kind: CallKind
    request: Message
    """The request; every attempt sets its `remote_id`."""
    entry_count: int = 1
    """Number of entries that an append writes."""
    is_repeatable: bool
    """Whether the request may be resent after an attempt with an unknown outcome."""
    deadline_s: float
    """Time on the loop's clock after which no attempt starts."""
    handler: CallHandler
    answer: asyncio.Future[Message | ClientError]
    """Errors are results, not exceptions: asyncio would log exceptions that are never retrieved."""
    attempts: int = 0
    began_s: float = 0.0
    answer_s: float = 0.0
    """How long the leader may delay its response."""
    due_at_s: float = 0.0
    """See `connection.Reply`, as for `expires_at_s`, `answered` and `lost`."""
    expires_at_s: float = 0.0
    connection: Connection | None = None
    """The connection of the current attempt."""
    sent_as_numbers: bool = False
    may_have_happened: bool = False
    last_code: DLedgerResponseCode | None = None
    problem: str = ""
    """Why the last attempt failed; human-readable."""
    full_problem: str = ""
    """The refusal of a leader whose volume is full. Such a leader hands over, so the group may have
    no leader afterwards.
    """
    sequencer: "Sequencer | None" = None
    """The object that assigns the sequence of an idempotent append; None for other calls."""
    parts: "Sequence[Call]" = ()
    """The calls that replace an idempotent batch which a member refused as a whole."""
    is_ordered: bool = False
    """Whether the owner of the call starts its `parts`, one after another."""
    on_end: Callable[[], None] | None = None
    """Called once when the call has ended, even if `answer` was cancelled earlier."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether an earlier attempt may have changed the log, regardless of the last one."""
        changes_log = self.kind.appends or self.kind is CHANGE_MEMBERSHIP
        return changes_log and self.may_have_happened and not self.parts

    def is_over(self, now_s: float) -> bool:
        """Return whether the call must not be sent any more: cancelled, or past its deadline."""
        return self.answer.done() or self.deadline_s <= now_s

    def cancel(self) -> None:
        """Stop waiting for the response; a call that was not sent yet is dropped."""
        self.answer.cancel()
        self.handler.cancelled(self)

    def refusal(self) -> RefusedError:
        """Return the error of a call whose last response was a refusal."""
        code = self.last_code or DLedgerResponseCode.UNSUPPORTED
        is_no_entry = code in (
            DLedgerResponseCode.INDEX_OUT_OF_RANGE,
            DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
        )
        return (NoEntryError if is_no_entry else RefusedError)(code, self.problem)

    def overdue(self, group: str, waited_s: float, problems: Iterable[str]) -> ClientError:
        """Return the error of a call that no leader accepted in time, including the `problems`."""
        if self.last_code is not None:
            return self.refusal()
        if self.full_problem:
            return RefusedError(DLedgerResponseCode.DISK_FULL, self.full_problem)
        reasons = dict.fromkeys(filter(None, (self.problem, *problems)))
        return GroupUnreachableError.without_leader(group, waited_s, list(reasons))

    def is_crowded_out(self, now_s: float) -> bool:
        """Return whether a batch should be split, since others take the room that it needs.

        Not if other requests of the client are in flight: the parts would take room from them.
        """
        is_shared = self.is_ordered and self.sequencer is not None and self.entry_count > 1
        is_full = self.last_code is DLedgerResponseCode.LEADER_PENDING_FULL
        return is_shared and is_full and now_s >= self.began_s + CROWDED_S

    def may_reach_leader(self, now_s: float, service_wait_s: float) -> bool:
        """Return whether a Service that led to a refusal may soon point to the leader.

        Only for appends and registrations. A member that is taking over, stopping or handing over
        refuses appends that it would otherwise pass on.
        """
        is_to_append = self.kind.appends or self.kind is REGISTER
        return is_to_append and now_s < self.began_s + service_wait_s

    def answered(self, command: RemotingCommand) -> None:
        """Pass a member's response to the handler."""
        self.handler.answered(self, command)

    def lost(self, error: ConnectionLostError) -> None:
        """Pass the failure of the current attempt to the handler."""
        self.handler.lost(self, error)
