"""Reads what watch events may not report of a group whose members are not all ready."""

from datetime import datetime, timedelta
from typing import Final

from dledger_operator.api_objects import CreationFailure
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.loops import GROUP_PACES, WAITING_INTERVAL_S, Lasting
from dledger_operator.behaviors.members import observe
from dledger_operator.clients.errors import KubeError

USUAL_S: Final = GROUP_PACES["observe"].interval_s
SLACK_S: Final = 0.5
"""How early a read may take place, so that it need not wait for the next round."""
CLOCKS_DIFFER_MAX: Final = timedelta(seconds=30)
"""By how much the clock of the StatefulSet controller may be behind."""


class UnreadyReads:
    """Reads the volume claims of one group, and why pods of it are missing, into its snapshot.

    Both are read at once after a change, and less and less often while nothing changes: a pod may
    be missing for days, because a quota or a paused spec keeps it away.
    """

    def __init__(self, context: Context, snapshot: GroupSnapshot) -> None:
        self._context = context
        self._snapshot = snapshot
        self.claims_changed = True
        """Whether a claim has changed since the claims were read."""
        self._lasting = Lasting(context.clock)
        self._pause_s = WAITING_INTERVAL_S
        self._read_s = 0.0
        self._known: object = None
        """What was known of the group at the last run."""
        self._seen_at: dict[str, datetime] = {}
        """When each pod was seen last, by its name."""

    async def run_once(self, steps: int) -> KubeError | None:
        """Read what is due. Return the error if that fails; the caller raises it after other work.

        `steps` counts the scaling steps so far: pods may be missing after each of them.
        """
        context, snapshot = self._context, self._snapshot
        applied, pods = snapshot.reconciled.generation, snapshot.followed.pods
        known = (pods, snapshot.group, snapshot.membership, applied, steps)
        now_s = context.clock()
        is_over = now_s - self._read_s >= self._pause_s - SLACK_S
        is_due = not self._all_ready and (is_over or known != self._known)
        self._known = known
        self._seen_at.update((pod.name, context.now()) for pod in pods)
        if not self._is_missing:
            snapshot.failures = []
        if not (self.claims_changed or is_due):
            return None
        self.claims_changed = False
        api, namespace, name = context.api, snapshot.namespace, snapshot.name
        try:
            snapshot.claims = await api.volume_claims(namespace, name)
        except KubeError as error:
            self.claims_changed = True  # no other event reports it
            return error
        if self._is_missing:
            try:
                failures = await observe.creation_failures(api, namespace, name)
            except KubeError as error:
                return error
            snapshot.failures = [each for each in failures if not self._is_old(each)]
        self._read_s = now_s
        return None

    def again_s(self) -> float | None:
        """Return the seconds until the next look at what is wrong, once the members were asked.

        None means the usual interval, after which only what is due is read.
        """
        snapshot, lacks_majority = self._snapshot, self._snapshot.lacks_majority
        if self._all_ready and not lacks_majority:
            self._lasting.forget()
            self._pause_s = WAITING_INTERVAL_S
            return None
        found = (self._known, snapshot.claims, snapshot.failures, lacks_majority)
        self._pause_s = max(WAITING_INTERVAL_S, self._lasting.pause_s(found))
        is_paused = snapshot.group is not None and snapshot.group.paused
        waits = (self._is_missing or lacks_majority) and not is_paused
        return self._pause_s if waits and self._pause_s < USUAL_S else None

    def _is_old(self, failure: CreationFailure) -> bool:
        """Return whether the pod existed after it was refused. Events live for an hour."""
        seen_at = self._seen_at.get(failure.pod)
        if seen_at is None or failure.at is None:
            return False
        return failure.at < seen_at - CLOCKS_DIFFER_MAX

    @property
    def _all_ready(self) -> bool:
        """Whether no pod is missing, and all are ready."""
        return not self._is_missing and all(pod.ready for pod in self._snapshot.followed.pods)

    @property
    def _is_missing(self) -> bool:
        """Whether a pod is missing: of a member that the spec asks for, or that the group has."""
        group, membership = self._snapshot.group, self._snapshot.membership
        if group is None or group.hibernate:
            return False
        wanted = {*group.member_ids, *membership.voters, *membership.learners}
        return not wanted <= {pod.member_id for pod in self._snapshot.followed.pods}
