"""The members' ServiceAccount, with no permissions and no token."""

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources.metadata import child
from dledger_operator.spec.group import Group


def build(group: Group) -> Manifest:
    """Build the ServiceAccount."""
    manifest = child(group, "ServiceAccount", "v1", names.service_account(group.name))
    return manifest | {"automountServiceAccountToken": False}
