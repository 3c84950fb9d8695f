"""One request on its way to the leader, and what an answer to it means. No IO."""

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec

from dledger_client.cluster.connection import Connection
from dledger_client.errors import ClientError, ConnectionLostError, RefusedError
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import append_batch, membership_change, producers
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.follow import FOLLOW as FOLLOW_CODE
from dledger_formats.protocol.follow import FollowResponse
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeMembershipResponse
from dledger_formats.protocol.producers import RegisterProducerResponse
from dledger_formats.protocol.register import READ_REGISTER as READ_REGISTER_CODE
from dledger_formats.protocol.register import ReadRegisterResponse
from dledger_formats.protocol.requests import (
    NOT_APPENDED,
    AppendEntryResponse,
    DLedgerResponseCode,
    GetEntriesResponse,
    Message,
    MetadataResponse,
    RequestCode,
    SystemCode,
)


class Verdict(enum.Enum):
    """What to do with a request after an answer."""

    DONE = enum.auto()
    RETRY_ELSEWHERE = enum.auto()
    """It had no effect; the leader is somewhere else."""
    RETRY_LATER = enum.auto()
    """It had no effect; the leader cannot take it at the moment."""
    RETRY_WITH_NUMBERS = enum.auto()
    """It had no effect; the member reads bytes only as arrays of numbers."""
    REFUSED = enum.auto()
    """It had no effect and never will."""
    REREGISTER = enum.auto()
    """It had no effect; the group does not remember its producer."""
    UNKNOWN = enum.auto()
    """It may have had its effect, or may still have it."""


_VERDICTS: Final[Mapping[DLedgerResponseCode, Verdict]] = {
    DLedgerResponseCode.SUCCESS: Verdict.DONE,
    DLedgerResponseCode.NOT_LEADER: Verdict.RETRY_ELSEWHERE,
    DLedgerResponseCode.UNKNOWN_MEMBER: Verdict.RETRY_ELSEWHERE,
    DLedgerResponseCode.LEADER_NOT_READY: Verdict.RETRY_LATER,
    DLedgerResponseCode.LEADER_PENDING_FULL: Verdict.RETRY_LATER,
    DLedgerResponseCode.LEADER_TRANSFERRING: Verdict.RETRY_LATER,
    DLedgerResponseCode.DISK_FULL: Verdict.RETRY_LATER,
    DLedgerResponseCode.UNKNOWN_PRODUCER: Verdict.REREGISTER,
    DLedgerResponseCode.SEQUENCE_TOO_NEW: Verdict.RETRY_LATER,  # said by a leader that was deposed
    DLedgerResponseCode.SEQUENCE_TOO_OLD: Verdict.REFUSED,
    DLedgerResponseCode.UNKNOWN_GROUP: Verdict.REFUSED,
    DLedgerResponseCode.UNSUPPORTED: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_OUT_OF_RANGE: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: Verdict.REFUSED,
}
"""Every other code leaves open what happened."""

assert all(_VERDICTS[code] is not Verdict.UNKNOWN for code in NOT_APPENDED)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallKind:
    """What all calls of one kind share."""

    code: int
    response_type: type[Message]
    decode: Callable[[bytes], Message]
    """Reads what nearly every answer looks like, and raises ValueError for the rest."""
    refusals: frozenset[DLedgerResponseCode] = frozenset()
    """Codes that, beside the usual ones, mean no for this kind."""
    waits: frozenset[DLedgerResponseCode] = frozenset()
    """Codes that, for this kind, mean that it may be asked again."""
    appends: bool = False
    encode: Callable[[Message, bool], bytes]
    """Makes the body of a request; the flag is for who reads bytes only as numbers."""


def _as_json(request: Message, as_numbers: bool) -> bytes:
    return request.to_json(bytes_as_numbers=as_numbers)


def _as_batch(request: Message, _: bool) -> bytes:
    assert isinstance(request, AppendBatchRequest)
    return request.to_bytes()


def _kind(
    code: int,
    response_type: type[Message],
    refusals: Iterable[DLedgerResponseCode] = (),
    *,
    waits: Iterable[DLedgerResponseCode] = (),
    appends: bool = False,
    encode: Callable[[Message, bool], bytes] = _as_json,
) -> CallKind:
    return CallKind(
        code=code,
        response_type=response_type,
        decode=msgspec.json.Decoder(response_type).decode,
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
READ_REGISTER: Final = _kind(READ_REGISTER_CODE, ReadRegisterResponse)
FOLLOW: Final = _kind(FOLLOW_CODE, FollowResponse)
TRANSFER: Final = _kind(
    RequestCode.LEADERSHIP_TRANSFER,
    LeadershipTransferResponse,
    {
        DLedgerResponseCode.EXPIRED_TERM,
        DLedgerResponseCode.INCONSISTENT_TERM,
        DLedgerResponseCode.INCONSISTENT_LEADER,
        DLedgerResponseCode.UNEXPECTED_ARGUMENT,
        DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
        DLedgerResponseCode.TAKE_LEADERSHIP_FAILED,
    },
)


def must_be_split(kind: CallKind, answer: "Message | ClientError") -> bool:
    """Whether a member refused bodies only because they shared a request."""
    return (
        kind is APPEND_BATCH
        and isinstance(answer, RefusedError)
        and answer.code is DLedgerResponseCode.UNSUPPORTED
    )


class CallHandler(Protocol):
    """Who sent a call, and decides on its next step."""

    def answered(self, call: "Call", command: RemotingCommand) -> None:
        """Take the answer of a member."""

    def lost(self, call: "Call", error: ConnectionLostError) -> None:
        """Hear that no answer will come to this attempt."""

    def cancelled(self, call: "Call") -> None:
        """Hear that nobody waits for the answer any more."""


class Sequencer(Protocol):
    """Who gives appends the sequences by which copies are known."""

    def reregister(self, call: "Call") -> None:
        """Number a call anew, which had no effect, since its producer is forgotten."""

    def ended(self, call: "Call") -> None:
        """Hear that nothing more can come of a call."""


class Call(msgspec.Struct, kw_only=True, eq=False):
    """A request, its attempts so far, and the future that ends it."""

    kind: CallKind
    request: Message
    """Without `remote_id`, which every attempt fills in."""
    entry_count: int = 1
    """How many entries an append is."""
    is_repeatable: bool
    """Whether it may be sent again when an attempt may have had its effect."""
    deadline_s: float
    """On the loop's clock; no attempt begins later."""
    handler: CallHandler
    answer: asyncio.Future[Message | ClientError]
    """Errors are values here, so that nobody is told of one that was never asked for."""
    attempts: int = 0
    began_s: float = 0.0
    answer_s: float = 0.0
    """For so long beyond the ordinary the leader may keep its answer back."""
    due_at_s: float = 0.0
    """As `connection.Reply` asks; so are `expires_at_s`, `answered` and `lost`."""
    expires_at_s: float = 0.0
    connection: Connection | None = None
    """Where the present attempt went."""
    sent_as_numbers: bool = False
    may_have_happened: bool = False
    last_code: DLedgerResponseCode | None = None
    problem: str = ""
    """Why the last attempt failed, for people."""
    sequencer: "Sequencer | None" = None
    """Who gave it its sequence, if it has one."""
    on_end: Callable[[], None] | None = None
    """Called once, when nothing more can come of it, though its answer was cancelled before."""

    def cancel(self) -> None:
        """Wait for the answer no more; what was not sent will not be."""
        self.answer.cancel()
        self.handler.cancelled(self)

    def answered(self, command: RemotingCommand) -> None:
        """Take the answer of a member."""
        self.handler.answered(self, command)

    def lost(self, error: ConnectionLostError) -> None:
        """Hear that no answer will come to this attempt."""
        self.handler.lost(self, error)


class Judgement(NamedTuple):
    """An answer and what it means."""

    verdict: Verdict
    response: Message | None = None
    code: DLedgerResponseCode | None = None
    reason: str = ""


def success(kind: CallKind, command: RemotingCommand) -> Message | None:
    """Return the answer if it says success in the usual form; None leaves it to `judge`."""
    if command.code != SystemCode.SUCCESS:
        return None
    try:
        response = kind.decode(command.body)
    except ValueError:
        return None
    return response if response.code is DLedgerResponseCode.SUCCESS else None


def judge(kind: CallKind, command: RemotingCommand) -> Judgement:
    """Say what an answer means for the request that it answers."""
    if command.code != SystemCode.SUCCESS:
        return _judge_system_error(command)
    try:
        response = kind.response_type.from_json(command.body)
    except FormatError as error:
        return Judgement(Verdict.UNKNOWN, reason=f"an answer cannot be read: {error}")
    if response.code is DLedgerResponseCode.SUCCESS:
        return Judgement(Verdict.DONE, response)
    verdict = _VERDICTS.get(response.code, Verdict.UNKNOWN)
    if response.code in kind.refusals:
        verdict = Verdict.REFUSED
    elif response.code in kind.waits:
        verdict = Verdict.RETRY_LATER
    reason = f"{response.code.value} {response.code.name}"
    if response.code is DLedgerResponseCode.NOT_LEADER:
        reason += f", the leader is {response.leader_id or 'not known'}"
    return Judgement(verdict, response, response.code, reason)


def _judge_system_error(command: RemotingCommand) -> Judgement:
    """Judge an answer of the remoting layer, which has a remark and no body."""
    remark = (command.remark or "no remark")[:200]
    reason = f"remoting code {command.code}: {remark}"
    if command.code == SystemCode.SYSTEM_BUSY:
        return Judgement(Verdict.RETRY_LATER, reason=reason)
    if command.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED:
        return Judgement(Verdict.REFUSED, code=DLedgerResponseCode.UNSUPPORTED, reason=reason)
    if "JSONException: illegal input" in remark and "fastjson2" in remark:
        # Java DLedger 0.4.3 fails so on base64, before it looks at the request.
        return Judgement(Verdict.RETRY_WITH_NUMBERS, reason=reason)
    return Judgement(Verdict.UNKNOWN, reason=reason)
