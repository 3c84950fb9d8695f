"""The PodDisruptionBudget that covers all members."""

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import child, group_selector
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape


def build(group: Group, shape: Shape) -> Manifest:
    """Build the budget.

    It selects all members, not a role: a budget over a role label would select no leader while a
    failover moves the label. `maxUnavailable` is the number of voters that the group can lose both
    now and at the size that the spec asks for. A group of one can lose none, but a budget of 0
    would block every drain, so the minimum is 1. Pods that do not vote yet count too, which makes
    the budget stricter, never weaker.
    """
    # During an election no member is ready although all of them vote, so a member that is not ready
    # may be evicted only while enough others are ready. The only member of a group has no others:
    # Kubernetes would never evict it while it is not ready, so a member that crashes would block
    # the drain of its node, although it may be evicted as long as it is ready.
    is_alone = max(shape.voters, group.replicas) == 1
    name = names.pod_disruption_budget(group.name)
    manifest = child(group, "PodDisruptionBudget", "policy/v1", name)
    voters = min(shape.voters, group.replicas)
    return manifest | {
        "spec": {
            "selector": {"matchLabels": group_selector(group.name)},
            "maxUnavailable": max(1, (voters - 1) // 2),
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if is_alone else "IfHealthyBudget",
        }
    }
