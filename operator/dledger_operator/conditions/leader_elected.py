"""LeaderElected: one member has proved that it leads."""

from dledger_operator import names, reasons
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "LeaderElected"


def judge(observed: ObservedGroup) -> Judgment:
    """Report whether there is a proven leader."""
    if observed.disputed:
        return Judgment(
            holds=False,
            reason="LeaderDisputed",
            message=(
                "two members claim to lead the same term, which Raft rules out: a member has lost "
                "its vote, for example because its volume was restored or wiped; audit the group "
                "before you use it again"
            ),
        )
    if observed.leader is None and observed.overstated_pods:
        return Judgment(
            holds=False,
            reason="TermTooHigh",
            message=(
                f"the annotation {names.TERM_ANNOTATION} is above every member's term on "
                f"{', '.join(observed.overstated_pods)}: somebody else has written it; the "
                "operator corrects it as soon as all voters answer, and the members of these pods "
                "if they run, and follows no leader until then"
            ),
        )
    if observed.leader is None:
        silent = [member.member_id for member in observed.members if member.status is None]
        cause = f"; no answer from {', '.join(silent)}" if silent else ""
        if observed.follow_problem:
            cause += f"; {observed.follow_problem.message}"
        return Judgment(
            holds=False,
            reason=reasons.NO_LEADER,
            message=f"no member has proved that it leads{cause}",
        )
    return Judgment(
        holds=True,
        reason="LeaderElected",
        message=f"{observed.leader.member_id} leads term {observed.leader.term}",
    )
