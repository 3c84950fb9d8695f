"""The Services for clients: one selects the leader, the other the followers.

Both select pods by the role label, which only the operator sets. They record the roles that they
were applied with: a spec that is paused or refused must not move the pods' labels away from them.
"""

import json

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import annotated, child, group_selector
from dledger_operator.spec.client_service import ClientService
from dledger_operator.spec.group import Group


def build_master(group: Group) -> Manifest:
    """Build the Service of the leader."""
    name = names.master_service(group.name)
    return _build(group, name, group.roles.master, group.master_service)


def build_slave(group: Group) -> Manifest:
    """Build the Service of the followers; it selects no pod in a group of one."""
    name = names.slave_service(group.name)
    return _build(group, name, group.roles.slave, group.slave_service)


def _build(group: Group, name: str, role: str, chosen: ClientService) -> Manifest:
    roles = group.roles
    recorded = {"label": roles.label, "master": roles.master, "slave": roles.slave}
    annotation = {names.ROLES_ANNOTATION: json.dumps({**recorded, "former": [*roles.former]})}
    manifest = annotated(child(group, "Service", "v1", name), {**chosen.annotations, **annotation})
    port = {"name": "remoting", "port": names.REMOTING_PORT, "targetPort": "remoting"}
    if chosen.node_port:
        port["nodePort"] = chosen.node_port
    spec: Manifest = {
        "type": chosen.type,
        "selector": {**group_selector(group.name), group.roles.label: role},
        "ports": [port],
    }
    if chosen.load_balancer_class:
        spec["loadBalancerClass"] = chosen.load_balancer_class
    if chosen.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = [*chosen.load_balancer_source_ranges]
    return manifest | {"spec": spec}
