"""Names that users see: API kinds, labels, annotations, ports, and the names of child objects."""

import hashlib
from datetime import UTC, datetime
from typing import Final

from dledger_formats import settings

API_GROUP: Final = "dledger.io"
API_VERSION: Final = "v1alpha1"
API_GROUP_VERSION: Final = f"{API_GROUP}/{API_VERSION}"
_OF_AUDITS: Final = "_audit"
GROUP_KIND: Final = "DLedgerGroup"
GROUPS_PLURAL: Final = "dledgergroups"
AUDIT_KIND: Final = "DLedgerAudit"
AUDITS_PLURAL: Final = "dledgeraudits"
SWITCHOVER_KIND: Final = "DLedgerSwitchover"
SWITCHOVERS_PLURAL: Final = "dledgerswitchovers"
REPLACE_KIND: Final = "DLedgerReplace"
REPLACES_PLURAL: Final = "dledgerreplaces"
FIELD_MANAGER: Final = "dledger-operator"

GROUP_LABEL: Final = "dledger.io/group"
MEMBER_LABEL: Final = "dledger.io/member"
ROLE_LABEL: Final = "dledger.io/role"
AUDIT_LABEL: Final = "dledger.io/audit"
AUDITED_GROUP_LABEL: Final = "dledger.io/audited-group"
AUDIT_CAUSE_LABEL: Final = "dledger.io/audit-cause"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
TEMPLATE_HASH_LABEL: Final = "controller-revision-hash"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"

TERM_ANNOTATION: Final = "dledger.io/term"
LEADER_POD_ANNOTATION: Final = "dledger.io/leader-pod-uid"
"""UID of the pod whose leadership a pod's role and term reflect."""
REVISION_ANNOTATION: Final = "dledger.io/revision"
FOUNDING_ANNOTATION: Final = "dledger.io/initial-group-state"
APPLIED_SPEC_ANNOTATION: Final = "dledger.io/applied-spec"
APPROVED_REVISION_ANNOTATION: Final = "dledger.io/approved-revision"
FIRST_VOTERS_ANNOTATION: Final = "dledger.io/first-voters"
REPLICAS_NOTE_ANNOTATION: Final = "dledger.io/replicas-to-restore"
STATEFUL_SET_ANNOTATION: Final = "dledger.io/stateful-set-uid"
"""On the ConfigMap with a group's settings: the uid of the StatefulSet whose group is to be founded
again, or of the last one before the StatefulSet was recreated (`founded_again.fence`).
"""
SUPERSEDED_ANNOTATION: Final = "dledger.io/superseded-first-voters"
"""On the ConfigMap with a group's settings: the numbers of first voters of its earlier foundings,
none of which has begun, separated by commas.
"""
GROWN_AT_ANNOTATION: Final = "dledger.io/grown-at"
MEMBER_REMOVED_ANNOTATION: Final = "dledger.io/member-removed"
MEMBER_REPLACED_ANNOTATION: Final = "dledger.io/member-replaced"
IDENTITY_ANNOTATION: Final = "dledger.io/group-identity"

ROLES_ANNOTATION: Final = "dledger.io/roles"

# The dot distinguishes this name from that of a release's Lease, which has none.
NAMESPACE_LEASE: Final = "groups.dledger.io"

# One Secret for all groups of a namespace, since permissions can be limited only by name.
TOKENS_NAME: Final = "admin-tokens.dledger.io"

ROLE_MASTER: Final = "master"
ROLE_SLAVE: Final = "slave"
ROLE_NONE: Final = "none"

REMOTING_PORT: Final = settings.REMOTING_PORT
HTTP_PORT: Final = settings.HTTP_PORT
BROKER_PORT: Final = 10911
"""The port of RocketMQ's brokers."""
NAMES_PORT: Final = 9876
"""The port of RocketMQ's name servers, which clients are configured with."""
VIP_PORT: Final = BROKER_PORT - 2
"""The port at which producers with `vipChannelEnabled` expect the same broker."""

NODE_CONTAINER: Final = "node"
SEED_CONTAINER: Final = "dledger-seed"
EXECUTOR_COMPONENT: Final = "audit-executor"
AUDIT_CONTAINER: Final = "audit"
"""The container of an audit's pod, and of its executors."""
DATA_VOLUME: Final = "data"
DATA_FOLDER: Final = "/data"
# A subfolder, because the file system keeps its own lost+found in the root of the volume.
STORE_FOLDER: Final = "/data/store"
SETTINGS_VOLUME: Final = "settings"
SETTINGS_FOLDER: Final = "/etc/dledger"
LIVE_SETTINGS_KEY: Final = "live.env"
LIVE_SETTINGS_FILE: Final = f"{SETTINGS_FOLDER}/{LIVE_SETTINGS_KEY}"
TOKENS_VOLUME: Final = "admin-token"
SEED_VOLUME: Final = "dledger-seed"
HISTORY_VOLUME: Final = "history"
TOKENS_FOLDER: Final = "/etc/dledger-admin-token"
TOKENS_FILE: Final = f"{TOKENS_FOLDER}/tokens"
AUDITS_VOLUME: Final = "audit-token"
AUDITS_FOLDER: Final = "/etc/dledger-audit-token"
AUDITS_FILE: Final = f"{AUDITS_FOLDER}/tokens"
TERMINATION_LOG: Final = "/dev/termination-log"

GROUP_NAME_LENGTH_MAX: Final = 40
AUDIT_NAME_LENGTH_MAX: Final = 52
OBJECT_NAME_LENGTH_MAX: Final = 253
"""The bound of Kubernetes for the names of most kinds."""
REPLICAS_ALLOWED: Final = (1, 3, 5, 7)
REPLICAS_MAX: Final = max(REPLICAS_ALLOWED)
TERM_MAX: Final = 2**63 - 1


def member_id(ordinal: int) -> str:
    """Return the member id for a pod ordinal, such as `n0`."""
    return f"n{ordinal}"


MEMBER_IDS: Final = tuple(map(member_id, range(REPLICAS_MAX)))
"""All ids that members of a group may have."""


def ordinal(member_id: str) -> int:
    """Return the pod ordinal of a member id; -1 if no member may have it."""
    return MEMBER_IDS.index(member_id) if member_id in MEMBER_IDS else -1


def pod(group: str, ordinal: int) -> str:
    """Return the name that the StatefulSet gives to a member's pod."""
    return f"{group}-{ordinal}"


def stateful_set(group: str) -> str:
    """Return the name of the members' StatefulSet."""
    return group


def volume_claim(pod_name: str) -> str:
    """Return the name that the StatefulSet gives to a pod's volume claim."""
    return f"{DATA_VOLUME}-{pod_name}"


def nodes_service(group: str) -> str:
    """Return the name of the headless Service, which gives each member a DNS name."""
    return f"{group}-nodes"


def master_service(group: str) -> str:
    """Return the name of the Service that selects the leader."""
    return f"{group}-master"


def slave_service(group: str) -> str:
    """Return the name of the Service that selects the followers."""
    return f"{group}-slave"


def broker_service(group: str) -> str:
    """Return the name of the Service that selects all members as brokers."""
    return f"{group}-broker"


def broker_address(namespace: str, group: str, port: int) -> str:
    """Return the host:port at which clients of the broker find any member."""
    return f"{broker_service(group)}.{namespace}.svc:{port}"


def settings_config_map(group: str) -> str:
    """Return the name of the ConfigMap that holds the members' settings."""
    return f"{group}-settings"


def token_annotation(group: str) -> str:
    """Return the annotation with what the operator knows about a group's administration token."""
    return f"{API_GROUP}/admin-token-{group}"


def audit_token_key(group: str) -> str:
    """Return the key of a group's audit token in the Secret; no group has such a name."""
    return f"{group}{_OF_AUDITS}"


def is_audit_token_key(key: str) -> bool:
    """Return whether a key of the Secret is that of an audit token."""
    return key.endswith(_OF_AUDITS)


def service_account(group: str) -> str:
    """Return the name of the members' ServiceAccount, which has no permissions."""
    return f"{group}-node"


def pod_disruption_budget(group: str) -> str:
    """Return the name of the PodDisruptionBudget over all members."""
    return group


def members_policy(group: str) -> str:
    """Return the name of the NetworkPolicy of the members."""
    return f"{group}-members"


def audits_policy(group: str) -> str:
    """Return the name of the NetworkPolicy of the group's audits."""
    return f"{group}-audits"


def audit_driver(audit: str, uid: str) -> str:
    """Return the name of the objects that only the driver of one audit uses. The uid rules out a
    clash with another client's object, or with an earlier audit that is being deleted.
    """
    return f"{audit}-audit-{uid[:8]}"


def audit_job(audit: str) -> str:
    """Return the name of an audit's Job."""
    return f"{audit}-audit"


def host(namespace: str, group: str, ordinal: int) -> str:
    """Return a member's DNS name, without the cluster domain, which the operator does not know."""
    return f"{pod(group, ordinal)}.{nodes_service(group)}.{namespace}.svc"


def remoting_address(namespace: str, group: str, ordinal: int) -> str:
    """Return the host:port at which peers and clients reach a member."""
    return f"{host(namespace, group, ordinal)}:{REMOTING_PORT}"


def http_url(namespace: str, group: str, ordinal: int) -> str:
    """Return the base URL of a member's HTTP API, which audits read."""
    return f"http://{host(namespace, group, ordinal)}:{HTTP_PORT}"


def timestamp(moment: datetime) -> str:
    """Format a time as the Kubernetes API does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(involved: str, *what: str) -> str:
    """Return a name derived from the Event's content, so that a repetition updates its count.

    The name of the object that the Event is about may be as long as that of an Event, so its end is
    left out if it must be. The digest tells such objects apart if `what` does.
    """
    digest = hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]
    room = OBJECT_NAME_LENGTH_MAX - len(digest) - 1
    return f"{involved[:room].rstrip('-.')}.{digest}"
