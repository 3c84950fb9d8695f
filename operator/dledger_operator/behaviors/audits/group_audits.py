"""Creates the audits that a group asks for by `spec.audit`, and deletes all but the last few."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dledger_operator import names, reasons
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.audits.planning import (
    SCALING_DOWN,
    NewAudit,
    Situation,
    decide,
)
from dledger_operator.behaviors.audits.records import without_fractions
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.leader.leader_history import LEADER_LOST, LEADER_STEPPED_DOWN
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.clients.errors import ConflictError, NotFoundError, RefusedError
from dledger_operator.problem import Problem
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.resources.metadata import owner
from dledger_operator.spec.audit_policy import AuditPolicy
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)

AUDIT_CREATED: Final = "AuditCreated"
INVALID_SCHEDULE: Final = "InvalidSchedule"
AUDIT_REFUSED: Final = "AuditRefused"
AUDIT_NOT_DELETED: Final = "AuditNotDeleted"
UNPLANNED: Final = (LEADER_LOST, LEADER_STEPPED_DOWN, reasons.POD_REPLACED)


class GroupAudits:
    """The audits of one group."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        on_event: Callable[[EventNote], None],
        wake: Callable[..., None],
    ) -> None:
        """Create the audits; `on_event` is called with every Event to record, `wake` with the names
        of the group's loops that have something to do.
        """
        self._context = context
        self._snapshot = snapshot
        self._on_event = on_event
        self._wake = wake
        self._refusal = ""
        """Why an audit could not be deleted at the last run; empty if all could."""

    def changed(self, body: Mapping[str, Any]) -> None:
        """Store a DLedgerAudit of the group that is new or has changed."""
        self._snapshot.audits.take(body)
        self._wake("audit", "report", "scale")

    def deleted(self, body: Mapping[str, Any]) -> None:
        """Drop a deleted DLedgerAudit of the group."""
        self._snapshot.audits.forget(body)
        self._wake("audit", "report")

    async def run_once(self) -> None:
        """Create the audit that is due, and delete those that are no longer kept.

        While the spec is invalid, no Job could be created, so the plan stays as it is.
        """
        audits, group = self._snapshot.audits, self._snapshot.group
        if group is None or group.is_partial:
            return
        policy = group.audit
        if policy is None:
            if audits.plan or audits.problem:
                audits.plan = audits.problem = None
                self._wake("report", "scale")
            return
        if not self._snapshot.reconciled.generation:
            return
        before = (audits.plan, audits.problem)
        situation = self._situation(group, policy)
        step = decide(policy, audits.plan, [*audits.bodies.values()], situation)
        audits.problem = (
            Problem(reason=INVALID_SCHEDULE, message=_without_schedule(policy))
            if policy.problem
            else None
        )
        done = step.create is None or await self._create(group, policy, step.create)
        audits.plan = without_fractions(step.plan if done else step.plan_without)
        if before != (audits.plan, audits.problem):
            self._wake("report", "scale")
        await self._delete_all(step.delete)

    def _situation(self, group: Group, policy: AuditPolicy) -> Situation:
        snapshot = self._snapshot
        ready = {pod.member_id for pod in snapshot.followed.pods if pod.ready}
        return Situation(
            group=group.name,
            now=self._context.now(),
            may_audit=bool(snapshot.followed.pods) and not group.paused,
            removes=snapshot.removes_members,
            replicas=group.replicas,
            failed_over_at=self._failed_over_at(),
            is_whole=snapshot.membership.voters <= ready,
            last=snapshot.audits.last,
            kept=snapshot.audits.kept,
        )

    def _failed_over_at(self) -> datetime | None:
        changes = self._snapshot.history.changes
        return next((each.at for each in changes if each.reason in UNPLANNED), None)

    async def _create(self, group: Group, policy: AuditPolicy, new: NewAudit) -> bool:
        """Create an audit. Return whether it exists now."""
        try:
            manifest = _manifest(
                group, policy, new, follows_damage=bool(self._snapshot.audits.kept)
            )
            made = await self._context.api.create_custom_object(manifest)
        except ConflictError:  # it was created before, but the record of it was lost
            return await self._is_taken_for(group, new)
        except RefusedError as error:
            message = f"an audit could not be created: {error}"
            self._snapshot.audits.problem = Problem(reason=AUDIT_REFUSED, message=message)
            return False
        self._snapshot.audits.take(made)
        message = f"created audit {new.name}: {new.why}"
        logger.info("%s/%s: %s", group.namespace, group.name, message)
        self._on_event(EventNote(severity=NORMAL, reason=AUDIT_CREATED, message=message))
        return True

    async def _is_taken_for(self, group: Group, new: NewAudit) -> bool:
        """Return whether the existing audit of this name is the one to create.

        Otherwise the operator tries again: an audit of an earlier group is about to be deleted, and
        the audit before a removal gets another name in the next minute.
        """
        existing = await self._context.api.custom_objects(names.AUDIT_KIND, group.namespace)
        found = [each["metadata"] for each in existing if each["metadata"]["name"] == new.name]
        if not found:
            return False
        owners = {each.get("uid") for each in found[0].get("ownerReferences") or []}
        created_at = datetime.fromisoformat(found[0]["creationTimestamp"])
        where = f"{names.AUDIT_KIND} {group.namespace}/{new.name}"
        if group.uid not in owners:
            message = f"{where} exists and is not owned by this group; delete it: {new.why}"
            self._snapshot.audits.problem = Problem(reason=AUDIT_REFUSED, message=message)
            return False
        if new.since is not None and created_at < new.since:
            logger.info("%s was created for an earlier removal; another one follows", where)
            return False
        logger.info("%s exists already", where)
        return True

    async def _delete_all(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Delete the audits that may be deleted, and tell why one may not be. It must not keep the
        later ones, of which there are more and more.
        """
        refusals = []
        for each in bodies:
            try:
                await self._context.api.delete_custom_object(names.AUDIT_KIND, each)
            except (ConflictError, NotFoundError):
                logger.info("audit %s is gone already", each["metadata"]["name"])
            except RefusedError as error:
                refusals.append(f"an audit that is no longer kept stays: {error}")
                continue
            self._snapshot.audits.forget(each)
        self._tell_refusal(refusals[0] if refusals else "")

    def _tell_refusal(self, message: str) -> None:
        """Tell why audits stay, once; the deletion is tried again and again."""
        if message and message != self._refusal:
            logger.warning("%s/%s: %s", self._snapshot.namespace, self._snapshot.name, message)
            self._on_event(EventNote(severity=WARNING, reason=AUDIT_NOT_DELETED, message=message))
        self._refusal = message


def _without_schedule(policy: AuditPolicy) -> str:
    """Return the message of an invalid schedule; it names the audits that are still created."""
    others = [
        words
        for words, asked in (
            ("after failovers", policy.after_failover),
            ("before members are removed", policy.before_scaling_down),
        )
        if asked
    ]
    still = f"; those {' and '.join(others)} still are" if others else ""
    return f"no audit is created by a schedule{still}: {policy.problem}"


def _manifest(
    group: Group, policy: AuditPolicy, new: NewAudit, *, follows_damage: bool = False
) -> Manifest:
    reads_all = new.cause == SCALING_DOWN or follows_damage
    return {
        "apiVersion": names.API_GROUP_VERSION,
        "kind": names.AUDIT_KIND,
        "metadata": {
            "namespace": group.namespace,
            "name": new.name,
            "labels": {
                names.AUDITED_GROUP_LABEL: group.name,
                names.AUDIT_CAUSE_LABEL: new.cause,
                names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
            },
            "ownerReferences": [owner(names.GROUP_KIND, group.name, group.uid)],
        },
        "spec": {
            "groupRef": {"name": group.name},
            **_request(policy, reads_all=reads_all),
        },
    }


def _request(policy: AuditPolicy, *, reads_all: bool) -> Manifest:
    """Return the spec that the group asks for.

    With `reads_all`, entries that the history has as sound are read, too: members are removed after
    the audit, or an audit that did not keep this history has found damage. The next Sound audit
    ends the report of that damage.
    """
    history = policy.request.get("history")
    if not reads_all or not history:
        return dict(policy.request)
    return {**policy.request, "history": {**history, "sinceLast": False}}
