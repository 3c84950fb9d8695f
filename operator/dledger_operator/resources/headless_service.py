"""The Service that gives every member a name of its own."""

from dledger_operator import names
from dledger_operator.resources.metadata import child, group_selector
from dledger_operator.spec.group import Group
from dledger_operator.views import Manifest


def build(group: Group) -> Manifest:
    """Build it.

    Names resolve before members are ready: they become ready by finding one another.
    """
    manifest = child(group, "Service", "v1", names.nodes_service(group.name))
    return manifest | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": group_selector(group.name),
            "ports": [
                {"name": "remoting", "port": names.REMOTING_PORT, "targetPort": "remoting"},
                {"name": "http", "port": names.HTTP_PORT, "targetPort": "http"},
            ],
        }
    }
