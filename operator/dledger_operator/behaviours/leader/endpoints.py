"""Reads where the master Service really leads, instead of believing that labels did their work."""

from collections.abc import Sequence

from dledger_operator.facts import EndpointsFacts
from dledger_operator.views import EndpointView


def judge(endpoints: Sequence[EndpointView], *, service: str, leader_pod: str) -> EndpointsFacts:
    """Compare the ready endpoints with the leader's pod; it is empty while nobody leads.

    Endpoints that are not ready get no traffic, so they may be anybody's.
    """
    ready = sorted({endpoint.pod for endpoint in endpoints if endpoint.ready})
    if ready == [leader_pod]:
        return _facts(True, "LeaderOnly", f"{service} leads to {leader_pod} alone")
    found = ", ".join(ready) or "nobody"
    if not leader_pod:
        reason = "StaleEndpoints" if ready else "NoLeader"
        return _facts(False, reason, f"nobody is known to lead, and {service} leads to {found}")
    if any(pod != leader_pod for pod in ready):
        return _facts(
            False, "WrongEndpoints", f"{leader_pod} leads, and {service} leads to {found}"
        )
    if leader_pod in {endpoint.pod for endpoint in endpoints}:
        return _facts(
            False, "LeaderNotReady", f"{leader_pod} leads, and its pod is not ready for {service}"
        )
    return _facts(False, "NoEndpoints", f"{leader_pod} leads, and {service} leads to nobody")


def _facts(synced: bool, reason: str, message: str) -> EndpointsFacts:
    return EndpointsFacts(synced=synced, reason=reason, message=message)
