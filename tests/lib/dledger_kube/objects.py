"""Sample objects with defaults, of which a test overrides single fields."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dledger_formats.http.status import (
    FlushDiskType,
    LeaderView,
    MembershipRole,
    NodeStatus,
    PeerStatus,
    Role,
)
from dledger_operator.api_objects import PodView
from dledger_operator.observed_state import (
    Leader,
    Membership,
    Observation,
    ObservedEndpoints,
    ObservedGroup,
    ObservedMember,
    Placement,
)
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults

IMAGES = ImageDefaults(reference="registry.example:5000/dledger-node:1.2", pull_policy="Always")
STATEFUL_SET_UID = "stateful-set-uid"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SYNCED = ObservedEndpoints(synced=True, reason="LeaderOnly", message="synced")


def group_body(
    spec: Mapping[str, Any] | None = None, *, name: str = "flights", uid: str = "group-uid"
) -> dict[str, Any]:
    """Return a DLedgerGroup of three members in the namespace `air`."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerGroup",
        "metadata": {
            "namespace": "air",
            "name": name,
            "uid": uid,
            "generation": 4,
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": {"storage": {"size": "10Gi"}, **(spec or {})},
    }


def audit_body(spec: Mapping[str, Any] | None = None, *, name: str = "monthly") -> dict[str, Any]:
    """Return a DLedgerAudit of the group `flights`."""
    return {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerAudit",
        "metadata": {"namespace": "air", "name": name, "uid": "audit-uid", "generation": 1},
        "spec": {"groupRef": {"name": "flights"}, **(spec or {})},
    }


def group(**spec: Any) -> Group:
    """Return the parsed form of `group_body`."""
    return Group.from_body(group_body(spec), IMAGES)


def membership(voters: int = 3, learners: tuple[str, ...] = ()) -> Membership:
    """Return a membership with the voters n0, n1, and so on, and these learners."""
    return Membership(
        voters=frozenset(f"n{ordinal}" for ordinal in range(voters)), learners=frozenset(learners)
    )


def pod(ordinal: int, role: str = "", term: int = -1, **fields: Any) -> PodView:
    """Return a running pod of member n<ordinal>; its role and term were set when n1 led."""
    values: dict[str, Any] = {
        "namespace": "air",
        "name": f"flights-{ordinal}",
        "uid": f"uid-{ordinal}",
        "member_id": f"n{ordinal}",
        "ip": f"127.0.0.{ordinal + 1}",
        "labels": {"dledger.io/role": role} if role else {},
        "term": term,
        "leader_pod_uid": "uid-1" if term >= 0 else "",
        "resource_version": "1",
        "owner_uid": STATEFUL_SET_UID,
        "leaving": False,
        "ready": True,
        "problem": None,
    }
    return PodView(**values | fields)


def leads(ordinal: int, term: int, **fields: Any) -> Observation:
    """Return the observation of a member that has proved that it leads."""
    return says(ordinal, term, f"n{ordinal}", master=True, **fields)


def says(ordinal: int, term: int, leader_id: str | None = None, **fields: Any) -> Observation:
    """Return the observation of a member that answers and names a leader, or none."""
    values: dict[str, Any] = {
        "pod_uid": f"uid-{ordinal}",
        "member_id": f"n{ordinal}",
        "answers": True,
        "term": term,
        "leader_id": leader_id,
        "master": False,
    }
    return Observation(**values | fields)


def silent(ordinal: int, term: int = -1, leader_id: str | None = None) -> Observation:
    """Return the observation of a member that no longer answers."""
    return says(ordinal, term, leader_id, answers=False)


def leader_view(member_id: str, term: int, leader_id: str | None = None) -> LeaderView:
    """Return the answer of a member's long poll."""
    return LeaderView(
        self_id=member_id,
        term=term,
        leader_id=leader_id,
        master=leader_id == member_id,
        ledger_end_index=0,
        committed_index=0,
    )


def node_status(member_id: str = "n0", **fields: Any) -> NodeStatus:
    """Return the answer of a member's `/status`."""
    values: dict[str, Any] = {
        "group": "flights",
        "self_id": member_id,
        "role": Role.FOLLOWER,
        "term": 7,
        "leader_id": "n1",
        "master": False,
        "ready": True,
        "reason": "",
        "broker_id": 1,
        "ledger_begin_index": 0,
        "ledger_end_index": 99,
        "ledger_end_term": 7,
        "committed_index": 99,
        "durable_index": 99,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "peers": {f"n{ordinal}": f"h{ordinal}:40911" for ordinal in range(3)},
        "followers": [],
        "version": "0.1.0",
    }
    return NodeStatus(**values | fields)


def leader_status(member_id: str = "n1", **fields: Any) -> NodeStatus:
    """Return the `/status` of a leader with two followers; the second is 10 entries behind."""
    followers = [
        PeerStatus(peer_id=peer_id, match_index=99 - lag, reachable=True)
        for peer_id, lag in (("n0", 0), ("n2", 10))
    ]
    values: dict[str, Any] = {
        "role": Role.LEADER, "master": True, "broker_id": 0, "followers": followers,
    }  # fmt: skip
    return node_status(member_id, **values | fields)


def member(ordinal: int, **fields: Any) -> ObservedMember:
    """Return a healthy member; the one with ordinal 1 is the leader."""
    member_id = f"n{ordinal}"
    values: dict[str, Any] = {
        "member_id": member_id,
        "pod": f"flights-{ordinal}",
        "role": "master" if ordinal == 1 else "slave",
        "membership": MembershipRole.VOTER,
        "exists": True,
        "ready": True,
        "reason": "",
        "problem": None,
        "status": leader_status() if ordinal == 1 else node_status(member_id),
    }
    return ObservedMember(**values | fields)


def observed_group(**fields: Any) -> ObservedGroup:
    """Return a healthy group of three, led by n1 in term 7."""
    values: dict[str, Any] = {
        "namespace": "air",
        "name": "flights",
        "replicas": 3,
        "first_voters": 3,
        "identity": "",
        "membership": membership(),
        "leader": Leader(term=7, member_id="n1"),
        "disputed": False,
        "members": tuple(member(ordinal) for ordinal in range(3)),
        "endpoints": SYNCED,
        "paused": False,
        "problem": None,
        "warning": None,
        "scaling_problem": None,
        "placement": Placement(holds=True, reason="NoPreference", message="any member may lead"),
        "starting": False,
    }
    return ObservedGroup(**values | fields)
