"""EndpointsSynced: the leader's pod is the only ready endpoint of the master Service."""

from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "EndpointsSynced"


def judge(observed: ObservedGroup) -> Judgment:
    """Report the result of comparing the EndpointSlices with the leader."""
    endpoints = observed.endpoints
    return Judgment(holds=endpoints.synced, reason=endpoints.reason, message=endpoints.message)
