"""All children of a group, in the order in which they are applied."""

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import (
    broker,
    client_service,
    config_map,
    headless_service,
    network_policies,
    pod_disruption_budget,
    service_account,
    stateful_set,
)
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape


def identities(of: Group) -> list[tuple[str, str]]:
    """Return kind and name of every child, in the order of `build`."""
    return _identities(of.name, with_broker=of.broker is not None)


def names_of(group: str) -> frozenset[str]:
    """Return the names that children of a group may have, whatever its spec."""
    return frozenset(name for _, name in _identities(group, with_broker=True))


def _identities(group: str, *, with_broker: bool) -> list[tuple[str, str]]:
    return [
        ("ServiceAccount", names.service_account(group)),
        ("ConfigMap", names.settings_config_map(group)),
        ("Service", names.nodes_service(group)),
        ("Service", names.master_service(group)),
        ("Service", names.slave_service(group)),
        *([("Service", names.broker_service(group))] if with_broker else []),
        ("PodDisruptionBudget", names.pod_disruption_budget(group)),
        ("NetworkPolicy", names.members_policy(group)),
        ("NetworkPolicy", names.audits_policy(group)),
        ("StatefulSet", names.stateful_set(group)),
    ]


def revision(group: Group, shape: Shape) -> Revision:
    """Return the revision of the pods that the StatefulSet creates."""
    return stateful_set.pod_revision(group, shape)


def build(group: Group, shape: Shape, not_live: frozenset[str] = frozenset()) -> list[Manifest]:
    """Build every child. A group may have no NetworkPolicies.

    `not_live` names live settings that the pods in force have in their environment.

    The StatefulSet comes last. Pods cannot start without the ServiceAccount and the settings, they
    find each other through the headless Service, and a drain must not find them without a budget.
    """
    policies = (
        [network_policies.build_members(group), network_policies.build_audits(group)]
        if network_policies.is_wanted(group)
        else []
    )
    return [
        service_account.build(group),
        config_map.build(group, shape, not_live),
        headless_service.build(group),
        client_service.build_master(group),
        client_service.build_slave(group),
        *([broker.build_service(group, group.broker.service)] if group.broker else []),
        pod_disruption_budget.build(group, shape),
        *policies,
        stateful_set.build(group, shape),
    ]
