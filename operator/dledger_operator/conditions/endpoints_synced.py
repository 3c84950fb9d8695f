"""EndpointsSynced: the leader's pod is the only ready endpoint of the master Service."""

from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "EndpointsSynced"


def judge(observed: ObservedGroup) -> Judgment:
    """Report the result of comparing the EndpointSlices with the leader."""
    endpoints, problem = observed.endpoints, observed.follow_problem
    why = f"; {problem.message}" if problem and not endpoints.synced else ""
    return Judgment(
        holds=endpoints.synced, reason=endpoints.reason, message=f"{endpoints.message}{why}"
    )
