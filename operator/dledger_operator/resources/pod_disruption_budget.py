"""The budget over all voters."""

from dledger_operator import names
from dledger_operator.group import Group
from dledger_operator.resources.metadata import child, group_selector
from dledger_operator.views import Manifest


def build(group: Group) -> Manifest:
    """Build it.

    It selects every voter and never a role: a budget over a role label has a hole while a
    switchover moves that label. As many voters may be away as the group can lose; a group of one
    can lose none, and a budget of 0 would block every drain, so there it is 1.
    """
    name = names.pod_disruption_budget(group.name)
    manifest = child(group, "PodDisruptionBudget", "policy/v1", name)
    return manifest | {
        "spec": {
            "selector": {"matchLabels": group_selector(group.name)},
            "maxUnavailable": max(1, (group.replicas - 1) // 2),
            # A member that is not ready is in no quorum, so evicting it costs none.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        }
    }
