"""Counts what happens to one group, on the replica of the operator that acts."""

import logging
from collections.abc import Callable, Sequence

from dledger_operator.behaviors.leader.leader_history import PhaseTime
from dledger_operator.metrics import OperatorMetrics

logger = logging.getLogger(__name__)


class GroupCounts:
    """The counts of one group in the metrics."""

    def __init__(
        self,
        metrics: OperatorMetrics,
        key: tuple[str, str],
        acts: Callable[[], bool],
        report: Callable[[], None],
    ) -> None:
        """Create the counts. `key` is the group's namespace and name. `acts` returns whether this
        replica acts for the group; others export nothing about it. `report` has the status written.
        """
        self._metrics = metrics
        self._key = key
        self._acts = acts
        self._report = report

    def double_masters(self, count: int) -> None:
        """Count double masters; a count of 0 creates the series."""
        if not self._acts():
            return
        if count:
            logger.error("%s/%s: two pods had the master label at once", *self._key)
        self._metrics.count_double_masters(*self._key, count)

    def leader_change(self, reason: str) -> None:
        """Count a leader change."""
        if self._acts():
            self._metrics.count_leader_change(*self._key, reason)

    def phases(self, phases: Sequence[PhaseTime]) -> None:
        """Record the phases of a leader change that have ended."""
        for each in phases if self._acts() else ():
            self._metrics.failover_s.labels(*self._key, each.phase).observe(each.seconds)
        self._report()
