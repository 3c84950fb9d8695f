"""Reconciles one group by what its other loops know of it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from dledger_operator.behaviours.children.growth import growths
from dledger_operator.behaviours.children.next_look import next_look_s
from dledger_operator.behaviours.children.reconcile import reconcile
from dledger_operator.behaviours.context import Context
from dledger_operator.behaviours.group_snapshot import GroupSnapshot


class GroupReconcile:
    """The reconciliations of one group."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        *,
        status: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        is_contested: Callable[[], bool],
    ) -> None:
        """Create it. `status` returns the current status of an object, `is_contested` whether
        another client keeps changing a child.
        """
        self._context = context
        self._snapshot = snapshot
        self._status = status
        self._is_contested = is_contested
        self._tried: frozenset[tuple[str, str]] = frozenset()
        """The claims that were to grow at the last reconciliation, and their sizes."""

    @property
    def growth_is_due(self) -> bool:
        """Whether a claim is to grow that was not when the group was last reconciled.

        A growth that was refused then is not due: the next look at the group tries it again.
        """
        return not self._to_grow(self._context.now()) <= self._tried

    async def run_once(self, body: Mapping[str, Any]) -> float | None:
        """Apply the spec of the object `body`, and store the outcome in the snapshot.

        Returns in how many seconds to look again; None if events tell everything. Raises
        GroupGoneError if the group is gone.
        """
        context, snapshot = self._context, self._snapshot
        async with context.reconcile_slots:
            began_s, now = context.clock(), context.now()
            to_grow = self._to_grow(now)
            outcome = await reconcile(
                context.api,
                {**body, "status": self._status(body)},
                context.node_image,
                led=snapshot.history.leader is not None,
                voters=len(snapshot.membership.voters),
                now=now,
                reported=snapshot.reported_identities(),
                blank=snapshot.blank_claims,
                use=snapshot.volume_use,
            )
        result = outcome.problem.reason if outcome.problem else "Applied"
        context.metrics.reconcile_s.labels(result).observe(context.clock() - began_s)
        self._tried = to_grow
        snapshot.take_reconciled(outcome)
        led = snapshot.history.leader is not None
        return next_look_s(outcome, led=led, contested=self._is_contested())

    def _to_grow(self, now: datetime) -> frozenset[tuple[str, str]]:
        snapshot = self._snapshot
        if snapshot.group is None:
            return frozenset()
        found = growths(snapshot.group.storage, snapshot.claims, snapshot.volume_use, now)
        return frozenset((each.claim.name, each.size) for each in found)
