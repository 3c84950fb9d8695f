"""What a response means for its request: what happened, and what to do next. Does no IO."""

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from dledger_client.calls.call import CallKind
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import NOT_APPENDED, DLedgerResponseCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.producers import RegisterProducerResponse
from dledger_formats.protocol.requests import AppendEntryResponse, Message

REMARK_SHOWN_MAX: Final = 200
"""Length to which a server's remark is cut in a message."""


class Verdict(enum.Enum):
    """What a response says about the effect of its request, and what to do next."""

    DONE = enum.auto()
    RETRY_ELSEWHERE = enum.auto()
    """No effect: this member is not the leader."""
    RETRY_LATER = enum.auto()
    """No effect: the leader cannot process it at the moment."""
    RETRY_WITH_NUMBERS = enum.auto()
    """No effect: the member decodes bytes only from JSON arrays of numbers."""
    REFUSED = enum.auto()
    """No effect, now or later."""
    REREGISTER = enum.auto()
    """No effect: the group no longer knows the producer, which must register again."""
    UNKNOWN = enum.auto()
    """The request may have had its effect, or may still have it."""


_VERDICTS: Final[Mapping[DLedgerResponseCode, Verdict]] = {
    DLedgerResponseCode.SUCCESS: Verdict.DONE,
    DLedgerResponseCode.NOT_LEADER: Verdict.RETRY_ELSEWHERE,
    DLedgerResponseCode.UNKNOWN_MEMBER: Verdict.RETRY_ELSEWHERE,
    DLedgerResponseCode.LEADER_NOT_READY: Verdict.RETRY_LATER,
    DLedgerResponseCode.LEADER_PENDING_FULL: Verdict.RETRY_LATER,
    DLedgerResponseCode.LEADER_TRANSFERRING: Verdict.RETRY_LATER,
    DLedgerResponseCode.DISK_FULL: Verdict.RETRY_LATER,
    DLedgerResponseCode.UNKNOWN_PRODUCER: Verdict.REREGISTER,
    DLedgerResponseCode.SEQUENCE_TOO_NEW: Verdict.RETRY_LATER,  # sent by a deposed leader
    DLedgerResponseCode.SEQUENCE_TOO_OLD: Verdict.REFUSED,
    DLedgerResponseCode.SEQUENCES_NOT_NEW: Verdict.REFUSED,
    DLedgerResponseCode.UNKNOWN_GROUP: Verdict.REFUSED,
    DLedgerResponseCode.UNSUPPORTED: Verdict.REFUSED,
    DLedgerResponseCode.ADMIN_TOKEN_MISSING: Verdict.REFUSED,
    DLedgerResponseCode.ADMIN_TOKEN_REFUSED: Verdict.REFUSED,
    DLedgerResponseCode.ADMIN_TOKEN_NOT_READY: Verdict.RETRY_LATER,
    DLedgerResponseCode.UNEXPECTED_ARGUMENT: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_OUT_OF_RANGE: Verdict.REFUSED,
    DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: Verdict.REFUSED,
}
"""The verdict of each code; every other code means UNKNOWN."""

assert all(_VERDICTS[code] is not Verdict.UNKNOWN for code in NOT_APPENDED)


class Judgement(NamedTuple):
    """A response and what it means."""

    verdict: Verdict
    response: Message | None = None
    code: DLedgerResponseCode | None = None
    reason: str = ""


def success(kind: CallKind, command: RemotingCommand) -> Message | None:
    """Return a response that reports success in the usual form, or None: then use `judge`."""
    if command.code != SystemCode.SUCCESS:
        return None
    try:
        response = kind.decode(command.body)
    except (ValueError, RecursionError):
        return None
    is_success = response.code is DLedgerResponseCode.SUCCESS and _is_whole(response)
    return response if is_success else None


def judge(kind: CallKind, command: RemotingCommand) -> Judgement:
    """Determine what a response means for its request."""
    if command.code != SystemCode.SUCCESS:
        return _judge_system_error(command)
    try:
        response = kind.decode_any(command.body)
    except FormatError as error:
        return Judgement(Verdict.UNKNOWN, reason=f"malformed response: {error}")
    if response.code is DLedgerResponseCode.SUCCESS:
        if not _is_whole(response):
            return Judgement(Verdict.UNKNOWN, reason="malformed response: a success of nothing")
        return Judgement(Verdict.DONE, response)
    verdict = _VERDICTS.get(response.code, Verdict.UNKNOWN)
    if response.code in kind.refusals:
        verdict = Verdict.REFUSED
    elif response.code in kind.waits:
        verdict = Verdict.RETRY_LATER
    reason = f"{response.code.value} {response.code.name}"
    if response.code is DLedgerResponseCode.NOT_LEADER:
        reason += f", the leader is {response.leader_id or 'unknown'}"
    elif kind.appends and response.code is DLedgerResponseCode.UNEXPECTED_ARGUMENT:
        reason += ", the body is too large for a segment of this group"
    elif response.code is DLedgerResponseCode.DISK_FULL:
        reason += ", the volume of the leader, or those of a majority, are full"
    elif command.remark:
        reason += f", {command.remark[:REMARK_SHOWN_MAX]}"
    return Judgement(verdict, response, response.code, reason)


def _is_whole(response: Message) -> bool:
    """Return whether a success names the entry, or the producer, that it is about."""
    if isinstance(response, AppendEntryResponse):
        return response.index >= 0
    return not isinstance(response, RegisterProducerResponse) or response.producer >= 0


def _judge_system_error(command: RemotingCommand) -> Judgement:
    """Judge an error response of the remoting layer, which has a remark instead of a body."""
    remark = (command.remark or "no remark")[:REMARK_SHOWN_MAX]
    reason = f"remoting code {command.code}: {remark}"
    if command.code == SystemCode.SYSTEM_BUSY:
        return Judgement(Verdict.RETRY_LATER, reason=reason)
    if command.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED:
        return Judgement(Verdict.REFUSED, code=DLedgerResponseCode.UNSUPPORTED, reason=reason)
    if "JSONException: illegal input" in remark and "fastjson2" in remark:
        # Java DLedger 0.4.3 fails to parse base64 with this error, before any effect.
        return Judgement(Verdict.RETRY_WITH_NUMBERS, reason=reason)
    return Judgement(Verdict.UNKNOWN, reason=reason)
