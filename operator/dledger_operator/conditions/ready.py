"""Ready: the summary. Appends through the master Service succeed, and the spec is what runs."""

from dledger_operator.conditions import endpoints_synced, leader_elected, quorum_healthy
from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "Ready"


def judge(facts: GroupFacts) -> Judgement:
    """True when the spec is in force and leader, majority and Service are; else the first cause."""
    if facts.problem:
        return Judgement(holds=False, reason=facts.problem.reason, message=facts.problem.message)
    for judge_part in (leader_elected.judge, quorum_healthy.judge, endpoints_synced.judge):
        judgement = judge_part(facts)
        if not judgement.holds:
            return judgement
    elected = leader_elected.judge(facts)
    count = f"{facts.ready_voters} of {len(facts.electorate.voters)} voters ready"
    return Judgement(holds=True, reason=elected.reason, message=f"{elected.message}; {count}")
