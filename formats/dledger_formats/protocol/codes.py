"""Codes of requests and of responses: Java's, and those of this project from 601 on."""

import enum
from typing import Final


class RequestCode(enum.IntEnum):
    """The code of a request, in its frame (`DLedgerRequestCode`)."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005
    INSTALL_SNAPSHOT = 51006
    USER_DEFINE_REQUEST = 59999


class SystemCode(enum.IntEnum):
    """The code in a response's frame (`RemotingSysResponseCode`); DLedger's code is in the body.

    Every code except SUCCESS comes with an empty body and a remark with the reason.
    """

    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    SUCCESS = 200


class DLedgerResponseCode(enum.IntEnum):
    """The `code` in a response's body. A number that is not listed reads as UNKNOWN."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    """To an APPEND, from our servers: the body is too large for a segment (Java: DISK_ERROR)."""
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    NEWER_INSTALL_SNAPSHOT_REQUEST_EXIST = 422
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    """The entry was not acknowledged in time. It is in the leader's log and may still commit."""
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    LOAD_SNAPSHOT_ERROR = 507
    INSTALL_SNAPSHOT_ERROR = 508
    UNKNOWN_PRODUCER = 601
    """The group does not know this producer (`producers`). This project's codes begin here."""
    SEQUENCE_TOO_OLD = 602
    """The sequence is below the remembered sequences of its producer."""
    SEQUENCE_TOO_NEW = 603
    """The sequence is too far above the producer's highest in the answering member's log."""
    SEQUENCES_NOT_NEW = 604
    """The log may have a sequence of this batch. Its bodies must be sent one by one."""
    MEMBERSHIP_CHANGING = 611
    """An earlier change is not committed yet (`membership_change`, as the codes that follow)."""
    NO_SUCH_MEMBER = 612
    """The member does not belong to the group, or is not among those that may be added."""
    LAST_VOTER = 613
    QUORUM_AT_RISK = 614
    """The voters that are reachable now would not be a majority after the change."""
    TOO_MANY_MEMBERS = 615
    ADMIN_TOKEN_MISSING = 621
    """The group demands its administration token, and the request has none (`administration`)."""
    ADMIN_TOKEN_REFUSED = 622
    """The request's token is not one of the group's."""
    ADMIN_TOKEN_NOT_READY = 623
    """The member demands a token and has not read any yet."""

    @classmethod
    def _missing_(cls, value: object) -> "DLedgerResponseCode":
        return cls.UNKNOWN


NOT_APPENDED: Final = frozenset(
    {
        DLedgerResponseCode.UNKNOWN_GROUP,
        DLedgerResponseCode.UNKNOWN_MEMBER,
        DLedgerResponseCode.NOT_LEADER,
        DLedgerResponseCode.UNEXPECTED_ARGUMENT,
        DLedgerResponseCode.DISK_FULL,
        DLedgerResponseCode.LEADER_PENDING_FULL,
        DLedgerResponseCode.LEADER_NOT_READY,
        DLedgerResponseCode.LEADER_TRANSFERRING,
        DLedgerResponseCode.UNKNOWN_PRODUCER,
        DLedgerResponseCode.SEQUENCE_TOO_OLD,
        DLedgerResponseCode.SEQUENCE_TOO_NEW,
        DLedgerResponseCode.SEQUENCES_NOT_NEW,
    }
)
"""Codes which mean that the entry of an APPEND was not appended and never will be.

Clients rely on this when they send an APPEND again, so a node uses these codes only before it
proposes the entry. If the fate of a proposed entry becomes unknown, for example by a change of the
leader, the answer is WAIT_QUORUM_ACK_TIMEOUT or TERM_CHANGED.
"""
