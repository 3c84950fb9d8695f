"""QuorumHealthy: enough voters are ready to commit."""

from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "QuorumHealthy"


def judge(facts: GroupFacts) -> Judgement:
    """True while a majority is ready."""
    absent = [member for member in facts.voters if not member.ready]
    count = f"{facts.ready_voters} of {len(facts.electorate.voters)} voters are ready"
    if not absent:
        return Judgement(holds=True, reason="AllMembersReady", message=count)
    message = f"{count}; " + "; ".join(f"{member.member_id}: {member.reason}" for member in absent)
    if facts.quorum_slack >= 0:
        return Judgement(holds=True, reason="MajorityReady", message=message)
    return Judgement(holds=False, reason="QuorumLost", message=message)
