"""Build the reports of a member in service from the state of its core and its store; no IO."""

import re
from dataclasses import dataclass, replace

from dledger_formats import live_settings
from dledger_formats.http.status import (
    LeaderView,
    MembershipRole,
    NodeStatus,
    PeerStatus,
    Role,
    StorageState,
)
from dledger_formats.settings import NodeSettings
from dledger_node.raft.core import Raft

MASTER_BROKER_ID = 0
NO_BROKER_ID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """The state of the store that the status reports."""

    durable_index: int
    problem: str
    """Human-readable problem; empty when the store is healthy."""
    state: StorageState = StorageState.SOUND
    applied_index: int = -1
    state_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Victory:
    """How this member became leader; the fields are those of LeaderView."""

    term: int
    stood_because: str
    former_leader_id: str
    silent_ms: int
    election_ms: int
    proved_s: float
    """When its first entry of the term was committed, on the clock of `leader_view`'s `now_s`."""


def leader_view(
    core: Raft,
    group: str = "",
    identity: str = "",
    victory: Victory | None = None,
    now_s: float = 0.0,
) -> LeaderView:
    """Return this member's view of the leader.

    `identity` is the group's. A victory in another term is not shown.
    """
    view = LeaderView(
        self_id=core.config.self_id,
        term=core.term,
        leader_id=_claimed_leader(core),
        master=core.master,
        ledger_end_index=core.ledger_end_index,
        committed_index=core.readable_index,
        group=group,
        group_identity=identity,
    )
    if victory is None or not core.master or victory.term != core.term:
        return view
    return replace(
        view,
        stood_because=victory.stood_because,
        former_leader_id=victory.former_leader_id,
        silent_ms=victory.silent_ms,
        election_ms=victory.election_ms,
        leading_ms=max(0, round(1000 * (now_s - victory.proved_s))),
    )


def node_status(
    core: Raft,
    settings: NodeSettings,
    store: StoreView,
    links: dict[str, bool],
    version: str,
    *,
    identity: str = "",
    settings_problem: str = "",
) -> NodeStatus:
    """Return this member's view of the group.

    `settings` are those in force; `settings_problem` is why newer ones are refused. `links` says
    which peers are connected, and `identity` is the group's.
    """
    reason = not_ready_reason(core, store)
    current = core.memberships.current
    full = core.full_peers
    return NodeStatus(
        group=settings.group,
        self_id=settings.self_id,
        role=Role(core.role.value),
        term=core.term,
        leader_id=core.leader_id,
        master=core.master,
        ready=not reason,
        reason=reason,
        broker_id=broker_id(core),
        ledger_begin_index=core.ledger_begin_index,
        ledger_end_index=core.ledger_end_index,
        ledger_end_term=core.ledger_end_term,
        committed_index=core.readable_index,
        durable_index=store.durable_index,
        flush_disk_type=settings.flush_disk_type,
        applied_index=store.applied_index,
        state_behind=store.state_behind,
        peers=peers(core, settings),
        followers=[
            PeerStatus(
                peer_id=peer_id,
                match_index=match_index,
                reachable=links.get(peer_id, False),
                full=peer_id in full,
            )
            for peer_id, match_index in sorted(core.match_indexes().items())
        ],
        storage=store.state,
        joining=bool(core.joining),
        unheard_voters=core.unheard_voters,
        seed_sha256=core.seed_sha256,
        joined_index=core.joined_index,
        membership=membership_role(core),
        voters=list(current.voters),
        learners=list(current.learners),
        addable=sorted(addable(core, settings)),
        membership_index=core.memberships.last_index,
        settings=live_settings.in_force(settings),
        settings_problem=settings_problem,
        group_identity=identity,
        version=version,
    )


def not_ready_reason(core: Raft, store: StoreView) -> str:
    """Return why this member does not serve its role; empty if it does."""
    if store.problem:
        return store.problem
    if membership_role(core) is MembershipRole.NONE and core.leader_id is None:
        return "not a member of the group: it has not been added yet, or it was removed"
    if core.joining:
        return f"joining: {core.joining}"
    if core.lacks_promised:
        return core.lacks_promised
    if core.contradiction:
        return f"rejects the leader of term {core.term}: {core.contradiction}"
    if core.leader_lacks:
        return core.leader_lacks
    if core.master:
        return ""
    if core.leads:
        return f"leads term {core.term}, but the first entry of the term is not committed yet"
    if core.leader_id is None:
        return f"knows no leader in term {core.term}"
    if not core.quorum_active:
        return f"receives no messages from {core.leader_id}, the leader of term {core.term}"
    if store.state_behind:
        return (
            f"applies its log to its state: entry {store.applied_index} is applied, of "
            f"{core.readable_index} that are committed"
        )
    return ""


def peers(core: Raft, settings: NodeSettings) -> dict[str, str]:
    """Return the addresses of the group's members, as far as the settings contain them."""
    known = settings.known_peers
    members = core.memberships.current.members
    return {member_id: known[member_id] for member_id in members if member_id in known}


def addable(core: Raft, settings: NodeSettings) -> dict[str, str]:
    """Return the addresses of the nodes that are not members and may be added."""
    members = core.memberships.current.members
    return {key: address for key, address in settings.known_peers.items() if key not in members}


def membership_role(core: Raft) -> MembershipRole:
    """Return this member's membership in its group."""
    current = core.memberships.current
    if core.config.self_id in current.voters:
        return MembershipRole.VOTER
    learns = core.config.self_id in current.learners
    return MembershipRole.LEARNER if learns else MembershipRole.NONE


def broker_id(core: Raft) -> int:
    """Return RocketMQ's broker id, as its role change handler sets it: 0, ordinal + 1, or -1."""
    if core.master:
        return MASTER_BROKER_ID
    if _claimed_leader(core) is None:
        return NO_BROKER_ID
    return member_ordinal(core.config.self_id) + 1


def member_ordinal(member_id: str) -> int:
    """Return the number at the end of a member's id (n2: 2); 0 if there is none."""
    digits = re.search(r"\d+$", member_id)
    return int(digits[0]) if digits else 0


def _claimed_leader(core: Raft) -> str | None:
    """Return the leader, unless it is this member and its first entry is not committed yet."""
    if core.leads and not core.master:
        return None
    return core.leader_id
