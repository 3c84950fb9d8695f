"""Progressing: the group's voters do not match `spec.replicas` yet."""

from dledger_operator import names
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "Progressing"


def judge(observed: ObservedGroup) -> Judgment:
    """Report whether scaling is complete: every desired member votes, and the group has no other
    member and no extra pod. The message lists the remaining steps and what blocks them.
    """
    wanted = {names.member_id(ordinal) for ordinal in range(observed.replicas)}
    voters, learners = observed.membership.voters, observed.membership.learners
    extra = {member.member_id for member in observed.members if member.exists} - wanted
    if voters == wanted and not learners and not extra:
        message = f"the group has {observed.replicas} voters, as spec.replicas asks for"
        return Judgment(holds=False, reason="AsRequested", message=message)
    message = f"the group has {len(voters)} voters; spec.replicas is {observed.replicas}"
    to_add = sorted(wanted - voters)
    if to_add:
        message += f"; to add: {', '.join(to_add)}"
    if to_remove := sorted((voters | learners | extra) - wanted):
        message += f"; to remove: {', '.join(to_remove)}"
    if observed.paused:
        return Judgment(holds=True, reason="Paused", message=f"{message}; spec.paused is true")
    if observed.scaling_problem:
        message += f"; {observed.scaling_problem.message}"
        return Judgment(holds=True, reason=observed.scaling_problem.reason, message=message)
    return Judgment(holds=True, reason="Growing" if to_add else "Shrinking", message=message)
