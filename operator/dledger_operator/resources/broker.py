"""What a group has for its broker: the Service for clients, and parts of its pods."""

from typing import Final

from dledger_formats.rocketmq import broker_variables as variables
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import annotated, child, group_selector
from dledger_operator.spec.client_service import ClientService
from dledger_operator.spec.group import Group
from dledger_operator.spec.pod_parts import BROKER_IP_VARIABLE

PORT_NAME: Final = "broker"


def build_service(group: Group, chosen: ClientService) -> Manifest:
    """Build the Service of the broker. It selects all members, not only the leader: each passes on
    what only the leader can do. A pod is an endpoint while it is ready, so a member gets no clients
    before it serves, and an election, which is shorter than three failed probes, removes none.
    """
    service = child(group, "Service", "v1", names.broker_service(group.name))
    ports = {
        "names": names.NAMES_PORT,
        PORT_NAME: names.BROKER_PORT,
        "vip": names.VIP_PORT,
    }
    spec: Manifest = {
        "type": chosen.type,
        "selector": group_selector(group.name),
        "ports": [
            {"name": name, "port": port, "targetPort": PORT_NAME} for name, port in ports.items()
        ],
    }
    if chosen.load_balancer_class:
        spec["loadBalancerClass"] = chosen.load_balancer_class
    if chosen.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = [*chosen.load_balancer_source_ranges]
    return annotated(service, chosen.annotations) | {"spec": spec}


def ports(group: Group) -> list[Manifest]:
    """Return the broker's port of the member's container; none without a broker."""
    if group.broker is None:
        return []
    return [{"name": PORT_NAME, "containerPort": names.BROKER_PORT}]


def own_variables(group: Group) -> list[Manifest]:
    """Return the variables of the broker that differ between pods; none without one.

    The brackets are those of an IPv6 address. The broker accepts them around any address, since
    only the pod's node knows which kind it is.
    """
    if group.broker is None:
        return []
    field = {"fieldRef": {"fieldPath": "status.podIP"}}
    address = f"[$({BROKER_IP_VARIABLE})]:{names.BROKER_PORT}"
    return [
        {"name": BROKER_IP_VARIABLE, "valueFrom": field},
        {"name": variables.OWN_ADDRESS, "value": address},
    ]
