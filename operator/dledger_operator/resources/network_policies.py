"""The NetworkPolicies of a group: what may connect to its members, and to its audits.

Members answer anyone who can connect. The client protocol reads and appends without a password, and
readers of the pages can use up connections that the operator needs. The kubelet's probes come from
the pod's own node, which no policy keeps out.
"""

from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import PART_OF, child, group_selector
from dledger_operator.spec.client_service import CLUSTER_IP
from dledger_operator.spec.group import Group
from dledger_operator.spec.network_policy import ANYWHERE, CLUSTER, LISTED

DNS_PORTS: Final = (53, 5353)
"""The ports on which pods serve DNS. A policy sees the port of the pod behind a Service; those of
OpenShift listen on 5353.
"""
OPERATOR_COMPONENT: Final = "operator"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"


def is_wanted(group: Group) -> bool:
    """Return whether the group has NetworkPolicies. Without the operator's namespace they would
    keep the operator out.
    """
    return group.network.enabled and bool(group.operator_namespace)


def build_members(group: Group) -> Manifest:
    """Build the policy of the members: all other connections to them are dropped."""
    everybody = [_in_group(group), _operator(group)]
    pages = [*everybody, _audits(group), *map(_namespace, group.network.monitoring_namespaces)]
    clients = [*everybody, *map(_namespace, group.network.client_namespaces)]
    if group.network.clients != LISTED:
        own_namespace: Manifest = {"podSelector": {}}
        pages.append(own_namespace)
        clients.append(own_namespace)
    if group.network.clients == CLUSTER:
        clients.append({"namespaceSelector": {}})
    ports = [names.REMOTING_PORT, *([names.BROKER_PORT] if group.broker else [])]
    remoting: Manifest = {"ports": [_tcp(port) for port in ports]}
    if not _is_open(group):
        remoting["from"] = clients
    name = names.members_policy(group.name)
    return child(group, "NetworkPolicy", "networking.k8s.io/v1", name) | {
        "spec": {
            "podSelector": {"matchLabels": group_selector(group.name)},
            "policyTypes": ["Ingress"],
            "ingress": [remoting, {"ports": [_tcp(names.HTTP_PORT)], "from": pages}],
        }
    }


def build_audits(group: Group) -> Manifest:
    """Build the policy of the audits' pods: nothing may connect to them, and they may connect only
    to members and DNS.
    """
    dns: list[Manifest] = [
        {"protocol": protocol, "port": port} for port in DNS_PORTS for protocol in ("UDP", "TCP")
    ]
    name = names.audits_policy(group.name)
    return child(group, "NetworkPolicy", "networking.k8s.io/v1", name) | {
        "spec": {
            "podSelector": {"matchLabels": {names.AUDITED_GROUP_LABEL: group.name}},
            # Without a rule, nothing may come in. The API server does not store an empty list of
            # rules, so each apply of one would count as a change.
            "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {"ports": dns},
                {"ports": [_tcp(names.HTTP_PORT)], "to": [_in_group(group)]},
            ],
        }
    }


def _is_open(group: Group) -> bool:
    """Return whether clients may connect from anywhere. A Service that is reachable from outside of
    the cluster hides the addresses of its clients behind those of nodes.
    """
    services = [group.master_service, group.slave_service]
    services += [group.broker.service] if group.broker else []
    outside = any(service.type != CLUSTER_IP for service in services)
    return outside or group.network.clients == ANYWHERE


def _in_group(group: Group) -> Manifest:
    return {"podSelector": {"matchLabels": group_selector(group.name)}}


def _audits(group: Group) -> Manifest:
    return {"podSelector": {"matchLabels": {names.AUDITED_GROUP_LABEL: group.name}}}


def _operator(group: Group) -> Manifest:
    labels = {names.COMPONENT_LABEL: OPERATOR_COMPONENT, PART_OF_LABEL: PART_OF}
    return _namespace(group.operator_namespace) | {"podSelector": {"matchLabels": labels}}


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: name}}}


def _tcp(port: int) -> Manifest:
    return {"protocol": "TCP", "port": port}
