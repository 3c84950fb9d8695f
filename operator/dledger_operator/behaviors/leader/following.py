"""Follows the leader of one group, and keeps the status correct while that fails.

A webhook, a missing permission or a limit of the API server may keep the operator from listing or
labeling pods until somebody acts. Meanwhile the members continue: they may elect another leader,
which the master Service does not select. So a run that fails still reports what it found, or else
what the members answer, and why it failed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.lasting_failure import LastingFailure
from dledger_operator.behaviors.leader.leader_polls import LeaderPolls
from dledger_operator.behaviors.leader.leadership import leaders_of_highest_term
from dledger_operator.behaviors.leader.role_labeler import FollowResult, RoleLabeler, pod_of
from dledger_operator.problem import Problem

FOLLOW_FAILS: Final = "FollowFails"


class Following:
    """The runs of a group's role labeler."""

    def __init__(
        self,
        labeler: RoleLabeler,
        polls: LeaderPolls,
        snapshot: GroupSnapshot,
        *,
        clock: Callable[[], float],
        on_found: Callable[[FollowResult], None],
    ) -> None:
        """Create the runs; `on_found` is called with what is known after a run that failed."""
        self._labeler = labeler
        self._polls = polls
        self._snapshot = snapshot
        self._clock = clock
        self._on_found = on_found
        self._failure = LastingFailure()
        self._problem: Problem | None = None

    async def run_once(self) -> float | None:
        """Follow the leader. Return the seconds until the next run; None if events suffice."""
        snapshot = self._snapshot
        if snapshot.group is None:
            return None
        try:
            again_s = await self._labeler.run_once(snapshot.group, snapshot.membership)
        except Exception as error:
            self._failed(error)
            raise
        self._failure.end()
        self._problem = None
        return again_s

    def polls_changed(self) -> None:
        """Use a member's new answer at once while runs fail, since the next run may come late."""
        if self._failure.is_under_way:
            self._on_found(self._by_polls())

    def _failed(self, error: Exception) -> None:
        if self._failure.failed(self._clock()):
            message = f"the group's pods cannot be listed or labeled: {error}"
            self._problem = Problem(reason=FOLLOW_FAILS, message=message)
        found = self._labeler.unsettled
        if found is None:
            self._on_found(self._by_polls())
            return
        labeled = self._snapshot.followed.labeled
        self._on_found(replace(found, labeled=labeled, problem=self._problem))

    def _by_polls(self) -> FollowResult:
        """Return the leader that the pods known so far prove."""
        known, membership = self._snapshot.followed, self._snapshot.membership
        leaders = leaders_of_highest_term(known.pods, self._polls.observations(), membership)
        leader = leaders[0] if len(leaders) == 1 else None
        return replace(
            known,
            leader=leader,
            leader_pod=pod_of(self._snapshot.name, leader),
            disputed=len(leaders) > 1,
            problem=self._problem,
        )
