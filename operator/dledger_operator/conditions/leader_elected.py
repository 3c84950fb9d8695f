"""LeaderElected: one member has proved that it leads."""

from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "LeaderElected"


def judge(facts: GroupFacts) -> Judgement:
    """True while there is a proven leader."""
    if facts.disputed:
        return Judgement(
            holds=False,
            reason="LeaderDisputed",
            message=(
                "two members claim to lead the same term, which Raft rules out: a member has lost "
                "its vote (was a volume restored or wiped?); audit the group before going on"
            ),
        )
    if facts.leader is None:
        silent = [member.member_id for member in facts.members if member.status is None]
        cause = f"; no answer from {', '.join(silent)}" if silent else ""
        return Judgement(
            holds=False, reason="NoLeader", message=f"no member has proved that it leads{cause}"
        )
    return Judgement(
        holds=True,
        reason="LeaderElected",
        message=f"{facts.leader.member_id} leads term {facts.leader.term}",
    )
