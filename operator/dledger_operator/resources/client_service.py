"""The Services for clients: one that selects the leader, one that selects the followers.

Both find their pods by the role label, which the operator alone sets.
"""

from dledger_operator import names
from dledger_operator.resources.metadata import annotated, child, group_selector
from dledger_operator.spec.group import ClientService, Group
from dledger_operator.views import Manifest


def build_master(group: Group) -> Manifest:
    """Build the Service of the leader."""
    name = names.master_service(group.name)
    return _build(group, name, group.roles.master, group.master_service)


def build_slave(group: Group) -> Manifest:
    """Build the Service of the followers; in a group of one it selects nobody."""
    name = names.slave_service(group.name)
    return _build(group, name, group.roles.slave, group.slave_service)


def _build(group: Group, name: str, role: str, chosen: ClientService) -> Manifest:
    manifest = annotated(child(group, "Service", "v1", name), chosen.annotations)
    return manifest | {
        "spec": {
            "type": chosen.type,
            "selector": {**group_selector(group.name), group.roles.label: role},
            "ports": [{"name": "remoting", "port": names.REMOTING_PORT, "targetPort": "remoting"}],
        }
    }
