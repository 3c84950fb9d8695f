"""Writes a group's status: at once when something that matters changes, else now and then."""

import copy
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from dledger_operator import names
from dledger_operator.behaviours.children.founding import FIRST_VOTERS_KEY
from dledger_operator.behaviours.leader.leader_history import LeaderHistory
from dledger_operator.conditions import of_group
from dledger_operator.facts import GroupFacts, LeaderChange, MemberFacts
from dledger_operator.views import Manifest

# Indexes move with every append. They are for people, and metrics have them sooner.
INDEXES_ONLY_S_MIN: Final = 10.0
# Heals a status that somebody else wrote over; it costs nothing where nothing differs.
REWRITE_S: Final = 300.0
_INDEX_KEYS: Final = ("committedIndex", "endIndex", "lagEntries")
_PHASE_KEYS: Final = {
    "detectSeconds": "detect_s",
    "electSeconds": "elect_s",
    "relabelSeconds": "relabel_s",
    "endpointsSeconds": "endpoints_s",
}


class StatusApi(Protocol):
    """What this behaviour asks of the API server."""

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        """Replace the status; NotFoundError when the object is gone."""


class StatusReporter:
    """Writes the status of one group."""

    def __init__(self, api: StatusApi, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._written: Manifest | None = None
        self._written_s = 0.0

    @property
    def written(self) -> Manifest | None:
        """What this process wrote last."""
        return self._written

    async def report(self, body: Mapping[str, Any], status: Manifest) -> None:
        """Write `status` if it is due."""
        if not self._is_due(status):
            return
        await self._api.apply_status(names.GROUP_KIND, body, status)
        self._written, self._written_s = status, self._clock()

    def _is_due(self, status: Manifest) -> bool:
        if self._written is None:
            return True
        age_s = self._clock() - self._written_s
        if status == self._written:
            return age_s >= REWRITE_S
        indexes_only = _without_indexes(status) == _without_indexes(self._written)
        return not indexes_only or age_s >= INDEXES_ONLY_S_MIN


def build_status(
    facts: GroupFacts,
    history: LeaderHistory,
    *,
    generation: int,
    previous: Mapping[str, Any],
    now: datetime,
) -> Manifest:
    """Build the status of a group; `previous` is the one before, or empty."""
    status: Manifest = {
        "observedGeneration": generation,
        "replicas": sum(member.exists for member in facts.members),
        "readyReplicas": sum(member.ready for member in facts.members),
        "membersReady": f"{facts.ready_voters}/{facts.replicas}",
        "selector": f"{names.GROUP_LABEL}={facts.name}",
        "toleratedFailures": max(-1, facts.quorum_slack),
        "members": [_member(facts, member) for member in facts.members],
        "leaderChanges": [leader_change_to_json(change) for change in history.changes],
        "conditions": of_group.build(
            facts, previous=previous.get("conditions") or [], now=now, generation=generation
        ),
    }
    first_voters = facts.first_voters or previous.get(FIRST_VOTERS_KEY)
    if first_voters is not None:
        status[FIRST_VOTERS_KEY] = first_voters
    if leader := _leader(facts, history, previous, now):
        status["leader"] = leader
    return status


def _leader(
    facts: GroupFacts, history: LeaderHistory, previous: Mapping[str, Any], now: datetime
) -> Manifest | None:
    leader, leading = facts.leader, facts.leading
    if leader is None or leading is None:
        return None
    before = previous.get("leader") or {}
    same = (before.get("member"), before.get("term")) == (leader.member_id, leader.term)
    began = [
        each.at
        for each in history.changes
        if (each.to_member, each.term) == (leader.member_id, leader.term)
    ]
    since = names.timestamp(began[0] if began else now)
    ordinal = names.ordinal(leader.member_id)
    return {
        "member": leader.member_id,
        "pod": leading.pod,
        "address": names.remoting_address(facts.namespace, facts.name, ordinal),
        "term": leader.term,
        "since": before.get("since", since) if same else since,
    }


def _member(facts: GroupFacts, member: MemberFacts) -> Manifest:
    shown: Manifest = {
        "id": member.member_id,
        "pod": member.pod,
        "role": member.role,
        "membership": member.membership.value,
        "ready": member.ready,
    }
    if status := member.status:
        shown |= {
            "brokerId": status.broker_id,
            "committedIndex": status.committed_index,
            "endIndex": status.ledger_end_index,
            "term": status.term,
            "flushDiskType": status.flush_disk_type.value,
        }
    lag_entries = facts.lag_entries(member)
    return shown if lag_entries is None else shown | {"lagEntries": lag_entries}


def leader_change_to_json(change: LeaderChange) -> Manifest:
    """Show a leader change; phases that were not seen are left out."""
    phases = {key: getattr(change, field) for key, field in _PHASE_KEYS.items()}
    return {
        "from": change.from_member,
        "to": change.to_member,
        "term": change.term,
        "reason": change.reason,
        "at": names.timestamp(change.at),
    } | {key: round(seconds, 3) for key, seconds in phases.items() if seconds is not None}


def leader_changes_from_json(status: Mapping[str, Any]) -> list[LeaderChange]:
    """Read what a status remembers; entries that cannot be read are forgotten."""
    changes = []
    for entry in status.get("leaderChanges") or []:
        try:
            phases = {field: entry.get(key) for key, field in _PHASE_KEYS.items()}
            changes.append(
                LeaderChange(
                    from_member=entry.get("from", ""),
                    to_member=entry["to"],
                    term=entry["term"],
                    reason=entry.get("reason", ""),
                    at=datetime.fromisoformat(entry["at"]),
                    **phases,
                )
            )
        except (KeyError, TypeError, ValueError):
            continue
    return changes


def _without_indexes(status: Manifest) -> Manifest:
    rest = copy.deepcopy(status)
    for member in rest["members"]:
        for key in _INDEX_KEYS:
            member.pop(key, None)
    return rest
