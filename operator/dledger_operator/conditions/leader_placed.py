"""LeaderPlaced: the leader is the preferred one, and its node is not being emptied."""

from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "LeaderPlaced"


def judge(observed: ObservedGroup) -> Judgment:
    """Report what was found when the leader was last compared with the spec and the nodes."""
    found = observed.placement
    if found is None:
        return Judgment(holds=None, reason="Unknown", message="the operator has not looked yet")
    return Judgment(holds=found.holds, reason=found.reason, message=found.message)
