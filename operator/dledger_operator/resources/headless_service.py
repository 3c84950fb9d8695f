"""The headless Service, which gives every member a DNS name."""

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import child, group_selector
from dledger_operator.spec.group import Group


def build(group: Group) -> Manifest:
    """Build the Service.

    It publishes addresses of pods that are not ready: members must reach each other to become
    ready.
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
