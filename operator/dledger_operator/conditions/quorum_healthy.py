"""QuorumHealthy: enough voters are ready to commit."""

from dledger_operator import reasons
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "QuorumHealthy"
ON_PURPOSE = (reasons.HIBERNATED, reasons.HIBERNATING)
"""Reasons of a group that has no majority because the user asked for it."""


def judge(observed: ObservedGroup) -> Judgment:
    """Report whether a majority of the voters is ready."""
    if observed.hibernates:
        message = "the group hibernates, so no member runs"
        return Judgment(holds=False, reason=reasons.HIBERNATED, message=message)
    absent = [member for member in observed.voters if not member.ready]
    count = f"{observed.ready_voters} of {len(observed.membership.voters)} voters are ready"
    if not absent:
        return Judgment(holds=True, reason="AllMembersReady", message=count)
    message = f"{count}; " + "; ".join(f"{member.member_id}: {member.reason}" for member in absent)
    if observed.quorum_slack >= 0:
        return Judgment(holds=True, reason="MajorityReady", message=message)
    reason = reasons.HIBERNATING if observed.falls_asleep else reasons.QUORUM_LOST
    return Judgment(holds=False, reason=reason, message=message)
