"""Comparing the endpoints of the master Service with the leader."""

import pytest

from dledger_operator.api_objects import EndpointView
from dledger_operator.behaviors.leader.endpoints import judge


def ready(pod: str) -> EndpointView:
    return EndpointView(pod=pod, ready=True)


def unready(pod: str) -> EndpointView:
    return EndpointView(pod=pod, ready=False)


@pytest.mark.parametrize(
    ("endpoints", "leader_pod", "expected"),
    [
        ([ready("f-1")], "f-1", (True, "LeaderOnly")),
        ([ready("f-1"), ready("f-1")], "f-1", (True, "LeaderOnly")),
        ([ready("f-1"), unready("f-0")], "f-1", (True, "LeaderOnly")),
        ([ready("f-0")], "f-1", (False, "WrongEndpoints")),
        ([ready("f-0"), ready("f-1")], "f-1", (False, "WrongEndpoints")),
        ([unready("f-1")], "f-1", (False, "LeaderNotReady")),
        ([], "f-1", (False, "NoEndpoints")),
        ([unready("f-0")], "f-1", (False, "NoEndpoints")),
        ([], "", (False, "NoLeader")),
        ([ready("f-0")], "", (False, "StaleEndpoints")),
    ],
)
def test_the_endpoints_are_synced_if_only_the_leaders_pod_is_ready(
    endpoints: list[EndpointView], leader_pod: str, expected: tuple[bool, str]
) -> None:
    judged = judge(endpoints, service="f-master", leader_pod=leader_pod)

    assert (judged.synced, judged.reason) == expected
