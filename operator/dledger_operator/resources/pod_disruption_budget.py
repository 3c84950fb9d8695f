"""The budget over all voters."""

from dledger_operator import names
from dledger_operator.resources.metadata import child, group_selector
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape
from dledger_operator.views import Manifest


def build(group: Group, shape: Shape) -> Manifest:
    """Build it.

    It selects every voter and never a role: a budget over a role label has a hole while a
    switchover moves that label. As many voters may be away as the group can lose, now and when it
    has become what the spec asks for; a group of one can lose none, and a budget of 0 would block
    every drain, so there it is 1. Pods that do not vote yet are counted with the rest, which errs
    on the safe side.
    """
    name = names.pod_disruption_budget(group.name)
    manifest = child(group, "PodDisruptionBudget", "policy/v1", name)
    voters = min(shape.voters, group.replicas)
    return manifest | {
        "spec": {
            "selector": {"matchLabels": group_selector(group.name)},
            "maxUnavailable": max(1, (voters - 1) // 2),
            # A member that is not ready is in no quorum, so evicting it costs none.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        }
    }
