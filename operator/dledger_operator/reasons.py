"""The reasons of conditions and Events that more than one module sets or compares.

A reason that only one module sets stays in that module, also if others import it from there. Users
and alerts read these texts, so they do not change.
"""

from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode

DISRUPTION_BUDGET: Final = "DisruptionBudget"
EARLIER_AUDIT: Final = "EarlierAudit"
FAILED_CREATE: Final = "FailedCreate"
"""The reason of the StatefulSet controller's Event about a pod that it could not create."""
GROUP_INVALID: Final = "GroupInvalid"
GROUP_NOT_FOUND: Final = "GroupNotFound"
HIBERNATED: Final = "Hibernated"
HIBERNATING: Final = "Hibernating"
INVALID_SPEC: Final = "InvalidSpec"
JOB_CREATED: Final = "JobCreated"
LEADERSHIP_MOVED: Final = "LeadershipMoved"
MEMBER_LAGS: Final = "MemberLags"
MEMBER_NOT_READY: Final = "MemberNotReady"
MEMBER_SILENT: Final = "MemberSilent"
NO_LEADER: Final = "NoLeader"
NO_SUCCESSOR: Final = "NoSuccessor"
PAUSED: Final = "Paused"
POD_REPLACED: Final = "PodReplaced"
POD_STARTING: Final = "PodStarting"
QUORUM_LOST: Final = "QuorumLost"
RECONCILE_FAILED: Final = "ReconcileFailed"
REQUEST_REFUSED: Final = "RequestRefused"
RESULT_LOST: Final = "ResultLost"
ROLL_UNDER_WAY: Final = "RollUnderWay"
SCALING: Final = "Scaling"
STALLED: Final = "Stalled"
TRANSFER_REFUSED: Final = "TransferRefused"
TRYING_AGAIN: Final = "TryingAgain"
UNSCHEDULABLE: Final = "Unschedulable"
"""The scheduler's reason for a pod that no node can run."""
VOLUME_TERMINATING: Final = "VolumeTerminating"


def of_refusal(code: DLedgerResponseCode) -> str:
    """Return the reason for a request that the leader has refused with this code."""
    return "".join(word.capitalize() for word in code.name.split("_"))


MEMBERSHIP_CHANGING: Final = of_refusal(DLedgerResponseCode.MEMBERSHIP_CHANGING)
QUORUM_AT_RISK: Final = of_refusal(DLedgerResponseCode.QUORUM_AT_RISK)
