"""Ready: the summary. The spec is in effect, and appends through the master Service succeed."""

from dledger_operator import reasons
from dledger_operator.conditions import (
    degraded,
    endpoints_synced,
    leader_elected,
    progressing,
    quorum_healthy,
)
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "Ready"


def judge(observed: ObservedGroup) -> Judgment:
    """Report the first failing part of: spec applied, leader, majority, endpoints, and a pod that
    runs what the spec asks for.
    """
    if observed.problem:
        return Judgment(
            holds=False, reason=observed.problem.reason, message=observed.problem.message
        )
    if observed.hibernates:
        message = (
            "spec.hibernate is true: the group has no pods, and keeps its volumes and Services; "
            "set it to false to wake the group"
        )
        return Judgment(holds=False, reason=reasons.HIBERNATED, message=message)
    for judge_part in (leader_elected.judge, quorum_healthy.judge, endpoints_synced.judge):
        judgment = judge_part(observed)
        if not judgment.holds:
            return _with_cause(observed, judgment)
    if observed.is_run_by_no_pod:
        reason = reasons.PAUSED if observed.paused else "NotRolledOut"
        message = f"the group serves; {progressing.pods_behind(observed)}"
        return Judgment(holds=False, reason=reason, message=message)
    elected = leader_elected.judge(observed)
    count = f"{observed.ready_voters} of {len(observed.membership.voters)} voters ready"
    return Judgment(holds=True, reason=elected.reason, message=f"{elected.message}; {count}")


def _with_cause(observed: ObservedGroup, judgment: Judgment) -> Judgment:
    """Add the problem of a pod or volume claim if the group lacks a leader or a majority."""
    if observed.leader is not None and observed.quorum_slack >= 0:
        return judgment
    cause = degraded.member_problem(observed)
    if cause is None:
        return judgment
    message = f"{judgment.message}; {cause.message}"
    return Judgment(holds=False, reason=cause.reason, message=message)
