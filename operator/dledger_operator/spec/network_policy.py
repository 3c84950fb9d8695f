"""The part of a spec that says which clients may connect to a group's members."""

from dataclasses import dataclass
from typing import Final

from dledger_operator.spec.spec_reader import SpecReader

NAMESPACE: Final = "Namespace"
LISTED: Final = "Listed"
CLUSTER: Final = "Cluster"
ANYWHERE: Final = "Anywhere"
CLIENTS: Final = (NAMESPACE, LISTED, CLUSTER, ANYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicySpec:
    """The part `networkPolicy` of a spec."""

    enabled: bool
    clients: str
    """Where clients may be: one of CLIENTS."""
    client_namespaces: tuple[str, ...]
    """Further namespaces whose pods may be clients."""
    monitoring_namespaces: tuple[str, ...]
    """Namespaces whose pods may read the members' pages."""


def read_network_policy(spec: SpecReader) -> NetworkPolicySpec:
    """Parse `networkPolicy`. Raises InvalidSpecError."""
    section = spec.section("networkPolicy")
    return NetworkPolicySpec(
        enabled=section.flag("enabled", default=True),
        clients=section.choice("clients", CLIENTS),
        client_namespaces=section.strings("clientNamespaces"),
        monitoring_namespaces=section.strings("monitoringNamespaces"),
    )
