"""Writes a group's status: at once after a relevant change, otherwise at intervals."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.audits.records import (
    LAST_KEY,
    PLAN_KEY,
    last_to_json,
    plan_to_json,
)
from dledger_operator.behaviors.founding.founding import FIRST_VOTERS_KEY
from dledger_operator.behaviors.founding.identity import IDENTITY_KEY
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.audit_findings import AUDIT_KEY, finding_to_json
from dledger_operator.behaviors.report.broker_status import BROKER_KEY, broker_to_json
from dledger_operator.behaviors.report.member_events import joining_to_json
from dledger_operator.behaviors.report.number_changes import (
    NUMBERS_ONLY_S_MIN,
    differ_in_numbers_only,
)
from dledger_operator.behaviors.report.quorum_events import (
    QUORUM_LOSS_KEY,
    quorum_loss_to_json,
)
from dledger_operator.conditions import of_group
from dledger_operator.held_template import HELD_TEMPLATE_KEY
from dledger_operator.observed_state import LeaderChange, ObservedGroup, ObservedMember, RollPlan
from dledger_operator.spec.accepted import ACCEPTED_KEY

# Repairs a status that another client overwrote; without a difference the write is a no-op.
REWRITE_S: Final = 300.0
_PHASE_KEYS: Final = {
    "detectSeconds": "detect_s",
    "electSeconds": "elect_s",
    "relabelSeconds": "relabel_s",
    "endpointsSeconds": "endpoints_s",
    "firstWriteSeconds": "first_write_s",
}
_OF_PODS: Final = (
    "replicas", "readyReplicas", "membersReady", "toleratedFailures", "flushDiskType", "members",
    "leader", "plan", BROKER_KEY,
)  # fmt: skip
"""The fields that stay as they were while the pods are not known."""


class StatusApi(Protocol):
    """The API request of this behavior."""

    async def apply_status(self, kind: str, body: Mapping[str, Any], status: Manifest) -> None:
        """Replace the status. Raises NotFoundError if the object does not exist."""


class StatusReporter:
    """Writes the status of one group."""

    def __init__(self, api: StatusApi, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._written: Manifest | None = None
        self._written_s = 0.0

    @property
    def written(self) -> Manifest | None:
        """The status that this process wrote last; None before the first write."""
        return self._written

    async def report(self, body: Mapping[str, Any], status: Manifest) -> None:
        """Write `status` if a write is due."""
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
        return age_s >= NUMBERS_ONLY_S_MIN or not differ_in_numbers_only(status, self._written)


def build_status(
    observed: ObservedGroup,
    history: LeaderHistory,
    *,
    generation: int,
    previous: Mapping[str, Any],
    now: datetime,
) -> Manifest:
    """Build the status of a group; `previous` is its current status, or empty."""
    known = {each.get("id"): each for each in previous.get("members") or []}
    led = observed.leader is not None
    status: Manifest = {
        "observedGeneration": generation,
        "replicas": sum(member.exists for member in observed.members),
        "readyReplicas": sum(member.ready for member in observed.members),
        "membersReady": f"{observed.ready_voters}/{observed.replicas}",
        "selector": f"{names.GROUP_LABEL}={observed.name}",
        "toleratedFailures": max(-1, observed.quorum_slack),
        **_flush_disk_type(observed),
        **_held_template(observed, previous),
        "members": [
            _member(member) | joining_to_json(member, known.get(member.member_id, {}), led=led)
            for member in observed.members
        ],
        "leaderChanges": [leader_change_to_json(change) for change in history.changes],
        "conditions": of_group.build(
            observed, previous=previous.get("conditions") or [], now=now, generation=generation
        ),
    }
    if loss := quorum_loss_to_json(previous, status["conditions"], now):
        status[QUORUM_LOSS_KEY] = loss
    first_voters = observed.first_voters or previous.get(FIRST_VOTERS_KEY)
    if first_voters is not None:
        status[FIRST_VOTERS_KEY] = first_voters
    if observed.plan:
        status["plan"] = _plan(observed.plan)
    if observed.broker:
        status[BROKER_KEY] = broker_to_json(observed.broker, observed)
    if observed.audit:
        status[AUDIT_KEY] = finding_to_json(observed.audit)
    if observed.audits.last:
        status[LAST_KEY] = last_to_json(observed.audits.last)
    if observed.audits.plan:
        status[PLAN_KEY] = plan_to_json(observed.audits.plan)
    if observed.accepted and (accepted := observed.accepted.to_json()):
        status[ACCEPTED_KEY] = accepted
    if observed.identity:
        status[IDENTITY_KEY] = observed.identity
    if leader := _leader(observed, history, previous, now):
        status["leader"] = leader
    if not observed.pods_known:
        status |= {key: previous[key] for key in _OF_PODS if key in previous}
    return status


def _leader(
    observed: ObservedGroup, history: LeaderHistory, previous: Mapping[str, Any], now: datetime
) -> Manifest | None:
    leader, leading = observed.leader, observed.leading
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
        "address": names.remoting_address(observed.namespace, observed.name, ordinal),
        "term": leader.term,
        "since": before.get("since", since) if same else since,
    }


def _plan(plan: RollPlan) -> Manifest:
    waiting = plan.waiting
    return {
        "revision": plan.revision,
        "cause": plan.cause,
        "pods": [{"pod": pod, "why": why} for pod, why in plan.pods],
        **(
            {"inForce": plan.in_force, "imageInForce": plan.image_in_force} if plan.in_force else {}
        ),
        **({"opensAt": names.timestamp(plan.opens_at)} if plan.opens_at else {}),
        **({"reason": waiting.reason, "message": waiting.message} if waiting else {}),
    }


def _held_template(observed: ObservedGroup, previous: Mapping[str, Any]) -> Manifest:
    """Return the record of the template in force; it stays as it was until children are applied."""
    if observed.held_template:
        return {HELD_TEMPLATE_KEY: observed.held_template.to_json()}
    if observed.first_voters is None and HELD_TEMPLATE_KEY in previous:
        return {HELD_TEMPLATE_KEY: previous[HELD_TEMPLATE_KEY]}
    return {}


def _flush_disk_type(observed: ObservedGroup) -> Manifest:
    """Return the members' answers; if they differ, with the number of members for each."""
    counts = Counter(
        member.status.flush_disk_type.value for member in observed.members if member.status
    )
    if not counts:
        return {}
    words = [
        name if len(counts) == 1 else f"{name} ({count})" for name, count in sorted(counts.items())
    ]
    return {"flushDiskType": ", ".join(words)}


def _member(member: ObservedMember) -> Manifest:
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
            "term": status.term,
            "flushDiskType": status.flush_disk_type.value,
        }
        if status.settings:
            shown["settings"] = dict(status.settings)
    if member.volume_requested:
        shown["volume"] = {"requested": member.volume_requested} | (
            {"capacity": member.volume_capacity} if member.volume_capacity else {}
        )
    runs = {
        "image": member.image,
        "revision": member.revision,
        "behind": member.behind,
        "lacks": member.lacks,
    }
    return shown | {key: value for key, value in runs.items() if value}


def leader_change_to_json(change: LeaderChange) -> Manifest:
    """Encode a leader change for the status, without phases that were not observed."""
    phases = {key: getattr(change, field) for key, field in _PHASE_KEYS.items()}
    return {
        "from": change.from_member,
        "to": change.to_member,
        "term": change.term,
        "reason": change.reason,
        "at": names.timestamp(change.at),
    } | {key: round(seconds, 3) for key, seconds in phases.items() if seconds is not None}


def leader_changes_from_json(status: Mapping[str, Any]) -> list[LeaderChange]:
    """Decode the leader changes in a status; invalid entries are dropped."""
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
