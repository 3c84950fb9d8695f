"""Reconciles one group, using what its other loops know about it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from dledger_operator import reasons
from dledger_operator.behaviors.children.child_watch import ChildWatch
from dledger_operator.behaviors.children.newest import generation_of, newest
from dledger_operator.behaviors.children.next_look import next_look_s
from dledger_operator.behaviors.children.reconcile import ReconcileResult, reconcile
from dledger_operator.behaviors.children.reconcile_failed import problem_of
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.lasting_failure import LastingFailure
from dledger_operator.behaviors.volumes.growth import growths, of_members
from dledger_operator.clients.errors import GroupGoneError, KubeError


class GroupReconcile:
    """The reconciliations of one group."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        *,
        status: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        watch: ChildWatch,
        on_newer: Callable[[Mapping[str, Any]], None],
        on_outcome: Callable[[], None],
    ) -> None:
        """Create; nothing is reconciled yet. `status` returns the current status of an object;
        `on_newer` is called with a version of it whose spec differs from the one to reconcile;
        `on_outcome` is called with each outcome in the snapshot.
        """
        self._context = context
        self._snapshot = snapshot
        self._status = status
        self._watch = watch
        self._on_newer = on_newer
        self._on_outcome = on_outcome
        self._tried: frozenset[tuple[str, str]] = frozenset()
        """The claims that were to grow at the last reconciliation, and their sizes."""
        self._failure = LastingFailure()
        """The failure of reconciliations, while the API server itself answers."""

    @property
    def growth_is_due(self) -> bool:
        """Whether a claim is to grow that was not to grow at the last reconciliation.

        A growth that was refused then is not due: the next look at the group tries it again.
        """
        return not self._to_grow(self._context.now()) <= self._tried

    async def run_once(self, body: Mapping[str, Any]) -> float | None:
        """Apply the spec of the object `body`, and store the outcome in the snapshot.

        Returns the seconds until the next reconciliation; None if events suffice. Raises
        GroupGoneError if the group is gone, and KubeError if a request fails.
        """
        try:
            outcome = await self._reconcile(body)
        except GroupGoneError:
            raise
        except KubeError as error:
            await self._note(error, body)
            raise
        self._failure.end()
        if outcome.generation > generation_of(body):
            self._take_newer(await newest(self._context.api, body), body)
        self._snapshot.take_reconciled(outcome)
        self._on_outcome()
        led = self._snapshot.history.leader is not None
        return next_look_s(outcome, led=led, contested=self._watch.is_contested)

    async def _reconcile(self, body: Mapping[str, Any]) -> ReconcileResult:
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
        self._tried = to_grow
        result = outcome.problem.reason if outcome.problem else "Applied"
        context.metrics.reconcile_s.labels(result).observe(context.clock() - began_s)
        return outcome

    async def _note(self, error: KubeError, body: Mapping[str, Any]) -> None:
        """Store in the snapshot why reconciliations fail, once that has lasted.

        Otherwise the status would still show an earlier generation or process. While the API server
        itself does not answer, no status can be written, and the failure says nothing about the
        group.
        """
        try:
            live = await newest(self._context.api, body)
        except GroupGoneError:
            raise
        except KubeError:
            self._failure.end()
            return
        if not self._failure.failed(self._context.clock()):
            return
        self._take_newer(live, body)
        generation, problem = generation_of(live), problem_of(error)
        before = self._snapshot.reconciled
        failed = before.problem is not None and before.problem.reason == reasons.RECONCILE_FAILED
        if before.generation == generation and (not failed or before.problem == problem):
            return
        outcome = replace(before, generation=generation, problem=problem, warning=None, growth=None)
        self._snapshot.take_reconciled(outcome)
        self._on_outcome()

    def _take_newer(self, live: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Let the other loops use the spec that was reconciled if it is newer than the known one.

        The watch may never report it, and the status of this generation contains what these loops
        conclude from the spec that they know.
        """
        if generation_of(live) > generation_of(known):
            self._on_newer(live)

    def _to_grow(self, now: datetime) -> frozenset[tuple[str, str]]:
        snapshot = self._snapshot
        group, shape = snapshot.group, snapshot.reconciled.shape
        if group is None or shape is None:
            return frozenset()
        claims = of_members(snapshot.claims, group, shape)
        found = growths(group.storage, claims, snapshot.volume_use, now)
        return frozenset((each.claim.name, each.size) for each in found)
