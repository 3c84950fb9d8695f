"""Degraded: the group serves less than it was asked to, and this is what stands in its way."""

from dledger_formats.http.status import StorageState
from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts, MemberFacts

TYPE = "Degraded"


def judge(facts: GroupFacts) -> Judgement:
    """True with the most telling cause: a pod's or volume's own trouble, then a voter that is not
    ready, then a part of the spec that cannot be had. Who does not vote yet has nothing to lose.
    """
    troubled = [member for member in facts.members if member.trouble and not member.ready]
    if troubled:
        reasons = [member.trouble.reason for member in troubled if member.trouble]
        message = "; ".join(
            f"{member.pod}: {member.trouble.reason}: {member.trouble.message}"
            for member in troubled
            if member.trouble
        )
        return Judgement(holds=True, reason=reasons[0], message=message)
    absent = [member for member in facts.voters if not member.ready]
    if absent and not facts.starting:
        message = "; ".join(f"{member.pod}: {member.reason}" for member in absent)
        reason = "MemberHealing" if all(map(_heals, absent)) else "MemberNotReady"
        return Judgement(holds=True, reason=reason, message=message)
    if facts.warning:
        return Judgement(holds=True, reason=facts.warning.reason, message=facts.warning.message)
    if absent:
        return Judgement(holds=False, reason="Starting", message="members are starting")
    return Judgement(holds=False, reason="AsExpected", message="every voter is ready")


def _heals(member: MemberFacts) -> bool:
    """Whether a member comes back without anybody's help."""
    return member.status is not None and member.status.storage is StorageState.HEALING
