"""A new group that copies its archive has no leader yet, and that is no fault."""

from dataclasses import replace

import pytest

from dledger_kube.objects import IMAGES, NOW, group_body, pod
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.observed_state import LeaderChange

CHANGE = LeaderChange(from_member="", to_member="n1", term=1, reason="FirstLeader", at=NOW)


def copies(*pods: PodView, changes: list[LeaderChange] | None = None) -> bool:
    snapshot = GroupSnapshot.of(group_body(), IMAGES)
    snapshot.followed = replace(snapshot.followed, pods=pods)
    snapshot.history = LeaderHistory(changes or [])
    return snapshot.observe(NOW, None, None, Nodes()).copies_archive


@pytest.mark.parametrize("copying", [(0,), (0, 1, 2), ()])
def test_a_group_copies_its_archive_until_no_member_does(copying: tuple[int, ...]) -> None:
    pods = (pod(each, copies_archive=each in copying, ready=False) for each in range(3))

    assert copies(*pods) is bool(copying)


def test_a_group_that_had_a_leader_copies_no_archive() -> None:
    """A pod that is made later gets the log from its peers; a lost leader must raise the alert."""
    assert not copies(pod(0, copies_archive=True), changes=[CHANGE])
