"""Progressing: the members are not yet those that `spec.replicas` asks for."""

from dledger_operator import names
from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "Progressing"


def judge(facts: GroupFacts) -> Judgement:
    """True until every wanted member votes, nobody else belongs to the group, and no pod is too
    many; the message says what is in the way.
    """
    wanted = {names.member_id(ordinal) for ordinal in range(facts.replicas)}
    voters, learners = facts.electorate.voters, facts.electorate.learners
    extra = {member.member_id for member in facts.members if member.exists} - wanted
    if voters == wanted and not learners and not extra:
        message = f"the group has the {facts.replicas} voters that spec.replicas asks for"
        return Judgement(holds=False, reason="AsRequested", message=message)
    message = f"{len(voters)} of {facts.replicas} members vote"
    if to_come := sorted(wanted - voters):
        message += f"; to come: {', '.join(to_come)}"
    if to_go := sorted((voters | learners | extra) - wanted):
        message += f"; to go: {', '.join(to_go)}"
    if facts.paused:
        return Judgement(holds=True, reason="Paused", message=f"{message}; spec.paused is true")
    if facts.obstacle:
        message += f"; {facts.obstacle.message}"
        return Judgement(holds=True, reason=facts.obstacle.reason, message=message)
    return Judgement(holds=True, reason="Growing" if to_come else "Shrinking", message=message)
