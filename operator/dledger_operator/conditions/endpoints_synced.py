"""EndpointsSynced: the master Service leads to the leader and to nobody else."""

from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "EndpointsSynced"


def judge(facts: GroupFacts) -> Judgement:
    """True while what was read of the EndpointSlices is right."""
    endpoints = facts.endpoints
    return Judgement(holds=endpoints.synced, reason=endpoints.reason, message=endpoints.message)
