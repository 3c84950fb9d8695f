"""One request on its way to the leader, and what an answer to it means. No IO."""

import asyncio
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from dledger_client.connection import Connection
from dledger_client.errors import ClientError, ConnectionLostError
from dledger_formats.frames import RemotingCommand
from dledger_formats.json_objects import FormatError
from dledger_formats.requests import (
    NOT_APPENDED,
    AppendEntryResponse,
    DLedgerResponseCode,
    GetEntriesResponse,
    Message,
    RequestCode,
    SystemCode,
)


class Verdict(enum.Enum):
    """What to do with a request after an answer."""

    DONE = enum.auto()
    ELSEWHERE = enum.auto()
    """It had no effect; the leader is somewhere else."""
    LATER = enum.auto()
    """It had no effect; the leader cannot take it at the moment."""
    AS_NUMBERS = enum.auto()
    """It had no effect; the member reads bytes only as arrays of numbers."""
    REFUSED = enum.auto()
    """It had no effect and never will."""
    UNKNOWN = enum.auto()
    """It may have had its effect, or may still have it."""


_VERDICTS: Final[Mapping[DLedgerResponseCode, Verdict]] = {
    DLedgerResponseCode.SUCCESS: Verdict.DONE,
    DLedgerResponseCode.NOT_LEADER: Verdict.ELSEWHERE,
    DLedgerResponseCode.UNKNOWN_MEMBER: Verdict.ELSEWHERE,
    DLedgerResponseCode.LEADER_NOT_READY: Verdict.LATER,
    DLedgerResponseCode.LEADER_PENDING_FULL: Verdict.LATER,
    DLedgerResponseCode.LEADER_TRANSFERRING: Verdict.LATER,
    DLedgerResponseCode.DISK_FULL: Verdict.LATER,
    DLedgerResponseCode.UNKNOWN_GROUP: Verdict.REFUSED,
    DLedgerResponseCode.UNSUPPORTED: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_OUT_OF_RANGE: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: Verdict.REFUSED,
}
"""Every other code leaves open what happened."""

assert all(_VERDICTS[code] is not Verdict.UNKNOWN for code in NOT_APPENDED)


class CallKind(NamedTuple):
    """What all calls of one kind share."""

    code: RequestCode
    response_type: type[Message]


APPEND: Final = CallKind(RequestCode.APPEND, AppendEntryResponse)
GET: Final = CallKind(RequestCode.GET, GetEntriesResponse)


class Carrier(Protocol):
    """Who sent a call, and decides on its next step."""

    def answered(self, call: "Call", command: RemotingCommand) -> None:
        """Take the answer of a member."""

    def lost(self, call: "Call", error: ConnectionLostError) -> None:
        """Hear that no answer will come to this attempt."""


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A request, its attempts so far, and the future that ends it."""

    kind: CallKind
    request: Message
    """Without `remote_id`, which every attempt fills in."""
    is_repeatable: bool
    """Whether it may be sent again when an attempt may have had its effect."""
    deadline_s: float
    """On the loop's clock; no attempt begins later."""
    carrier: Carrier
    answer: asyncio.Future[Message | ClientError]
    """Errors are values here, so that nobody is told of one that was never asked for."""
    attempts: int = 0
    began_s: float = 0.0
    answer_by_s: float = 0.0
    connection: Connection | None = None
    """Where the present attempt went."""
    sent_as_numbers: bool = False
    may_have_happened: bool = False
    last_code: DLedgerResponseCode | None = None
    problem: str = field(default="")
    """Why the last attempt failed, for people."""

    def answered(self, command: RemotingCommand) -> None:
        """As `connection.Reply` asks."""
        self.carrier.answered(self, command)

    def lost(self, error: ConnectionLostError) -> None:
        """As `connection.Reply` asks."""
        self.carrier.lost(self, error)


class Judgement(NamedTuple):
    """An answer and what it means."""

    verdict: Verdict
    response: Message | None = None
    code: DLedgerResponseCode | None = None
    reason: str = ""


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
    reason = f"{response.code.value} {response.code.name}"
    if response.code is DLedgerResponseCode.NOT_LEADER:
        reason += f", the leader is {response.leader_id or 'not known'}"
    return Judgement(verdict, response, response.code, reason)


def _judge_system_error(command: RemotingCommand) -> Judgement:
    """Judge an answer of the remoting layer, which has a remark and no body."""
    remark = (command.remark or "no remark")[:200]
    reason = f"remoting code {command.code}: {remark}"
    if command.code == SystemCode.SYSTEM_BUSY:
        return Judgement(Verdict.LATER, reason=reason)
    if command.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED:
        return Judgement(Verdict.REFUSED, code=DLedgerResponseCode.UNSUPPORTED, reason=reason)
    if "JSONException: illegal input" in remark and "fastjson2" in remark:
        # Java DLedger 0.4.3 fails so on base64, before it looks at the request.
        return Judgement(Verdict.AS_NUMBERS, reason=reason)
    return Judgement(Verdict.UNKNOWN, reason=reason)
