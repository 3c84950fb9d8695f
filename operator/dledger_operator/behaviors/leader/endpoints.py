"""Compares the endpoints of the master Service with the leader."""

from collections.abc import Sequence

from dledger_operator import reasons
from dledger_operator.api_objects import EndpointView
from dledger_operator.observed_state import ObservedEndpoints


def judge(
    endpoints: Sequence[EndpointView] | None, *, service: str, leader_pod: str
) -> ObservedEndpoints:
    """Compare the ready endpoints with the leader's pod.

    `endpoints` is None until they have been read; `leader_pod` is empty without a leader. Endpoints
    that are not ready receive no traffic, so they are ignored.
    """
    if endpoints is None:
        message = f"the endpoints of {service} have not been read yet"
        return _observed(None, "EndpointsUnknown", message)
    ready = sorted({endpoint.pod for endpoint in endpoints if endpoint.ready})
    if ready == [leader_pod]:
        return _observed(
            True, "LeaderOnly", f"{leader_pod} is the only ready endpoint of {service}"
        )
    found = ", ".join(ready) or "none"
    if not leader_pod:
        reason = "StaleEndpoints" if ready else reasons.NO_LEADER
        return _observed(
            False, reason, f"no leader is known; ready endpoints of {service}: {found}"
        )
    if any(pod != leader_pod for pod in ready):
        return _observed(
            False, "WrongEndpoints", f"{leader_pod} leads; ready endpoints of {service}: {found}"
        )
    if leader_pod in {endpoint.pod for endpoint in endpoints}:
        return _observed(
            False,
            "LeaderNotReady",
            f"{leader_pod} leads, but its endpoint of {service} is not ready",
        )
    return _observed(
        False, "NoEndpoints", f"{leader_pod} leads, but {service} has no ready endpoint"
    )


def _observed(synced: bool | None, reason: str, message: str) -> ObservedEndpoints:
    return ObservedEndpoints(synced=synced, reason=reason, message=message)
