"""The configurable part of a Service for clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger_operator.spec.spec_reader import SpecReader

SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
CLUSTER_IP, _, LOAD_BALANCER = SERVICE_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientService:
    """The configurable part of the master, the slave or the broker Service."""

    type: str
    annotations: Mapping[str, str]
    node_port: int = 0
    """The port on every node; 0 lets the cluster choose one."""
    load_balancer_class: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()


def read_client_service(service: SpecReader) -> ClientService:
    """Parse a Service. Fields that its type does not support are left out, because the API server
    would refuse them; the schema documents this.
    """
    kind = service.choice("type", SERVICE_TYPES)
    balanced = kind == LOAD_BALANCER
    ranges = service.strings("loadBalancerSourceRanges")
    return ClientService(
        type=kind,
        annotations=service.texts("annotations"),
        node_port=service.number("nodePort", 0) if kind != CLUSTER_IP else 0,
        load_balancer_class=service.text("loadBalancerClass") if balanced else "",
        load_balancer_source_ranges=ranges if balanced else (),
    )
