"""The members' ServiceAccount: a name of their own, with no permissions and no token."""

from dledger_operator import names
from dledger_operator.resources.metadata import child
from dledger_operator.spec.group import Group
from dledger_operator.views import Manifest


def build(group: Group) -> Manifest:
    """Build it."""
    manifest = child(group, "ServiceAccount", "v1", names.service_account(group.name))
    return manifest | {"automountServiceAccountToken": False}
