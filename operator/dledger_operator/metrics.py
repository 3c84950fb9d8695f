"""The operator's metrics.

Those of groups are made from the last known facts when Prometheus asks, so that the series of a
deleted group vanish with it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_operator import names
from dledger_operator.facts import GroupFacts, MemberFacts

FAILOVER_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_GROUP: Final = ("namespace", "group")
_MEMBER: Final = (*_GROUP, "member")


@dataclass(slots=True)
class _GroupSeries:
    """What is shown of one group."""

    facts: GroupFacts | None = None
    image: str = ""
    flush_disk_type: str = ""
    leader_changes: Counter[str] = field(default_factory=Counter)
    double_masters: int = 0


class OperatorMetrics(Collector):
    """Everything that the operator counts and knows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._groups: dict[tuple[str, str], _GroupSeries] = {}
        self.failover_s = Histogram(
            "dledger_failover_seconds",
            "Duration of a leader change, by phase; total is all of them together.",
            ["phase"],
            buckets=FAILOVER_BUCKETS_S,
            registry=self.registry,
        )
        self.reconcile_s = Histogram(
            "dledger_reconcile_seconds",
            "Duration of applying a group's children, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.failures = PrometheusCounter(
            "dledger_operator_failures",
            "Turns of a behaviour that failed and were taken again later.",
            ["behaviour"],
            registry=self.registry,
        )
        self.audits = PrometheusCounter(
            "dledger_audits",
            "Audits that ended, by verdict; Failed for those without one.",
            ["verdict"],
            registry=self.registry,
        )
        self.registry.register(self)

    def show(self, facts: GroupFacts, *, image: str, flush_disk_type: str) -> None:
        """Show a group as it is now."""
        series = self._series(facts.namespace, facts.name)
        series.facts, series.image, series.flush_disk_type = facts, image, flush_disk_type

    def forget(self, namespace: str, group: str) -> None:
        """Let a deleted group's series vanish."""
        self._groups.pop((namespace, group), None)

    def count_leader_change(self, namespace: str, group: str, reason: str) -> None:
        """Count a new leader."""
        self._series(namespace, group).leader_changes[reason] += 1

    def count_double_masters(self, namespace: str, group: str, count: int) -> None:
        """Count what must never be; a count of 0 makes the series exist."""
        self._series(namespace, group).double_masters += count

    def collect(self) -> Iterable[Metric]:
        """Make the families of all groups."""
        known = [(series, series.facts) for series in self._groups.values() if series.facts]
        yield _info(known)
        yield from _leadership([facts for _, facts in known])
        yield from _members([facts for _, facts in known])
        changes = CounterMetricFamily(
            "dledger_leader_changes", "Changes of the leader.", labels=[*_GROUP, "reason"]
        )
        doubles = CounterMetricFamily(
            "dledger_double_master_observed",
            "Times that two pods carried the master's label at once. It must stay 0.",
            labels=_GROUP,
        )
        for key, series in self._groups.items():
            for reason, count in series.leader_changes.items():
                changes.add_metric([*key, reason], count)
            doubles.add_metric(key, series.double_masters)
        yield from (changes, doubles)

    def _series(self, namespace: str, group: str) -> _GroupSeries:
        return self._groups.setdefault((namespace, group), _GroupSeries())


def _info(known: Sequence[tuple[_GroupSeries, GroupFacts]]) -> Metric:
    info = GaugeMetricFamily(
        "dledger_group_info",
        "What a group is; always 1.",
        labels=[*_GROUP, "replicas", "image", "flush_disk_type"],
    )
    for series, facts in known:
        labels = [str(facts.replicas), series.image, series.flush_disk_type]
        info.add_metric([facts.namespace, facts.name, *labels], 1)
    return info


def _leadership(groups: Sequence[GroupFacts]) -> Iterable[Metric]:
    leader = GaugeMetricFamily(
        "dledger_group_leader", "1 for the leader.", labels=[*_GROUP, "pod", "term"]
    )
    term = GaugeMetricFamily("dledger_group_term", "The leader's term.", labels=_GROUP)
    slack = GaugeMetricFamily(
        "dledger_group_quorum_slack",
        "Ready members beyond a majority; below 0 the group stands still.",
        labels=_GROUP,
    )
    for facts in groups:
        key = [facts.namespace, facts.name]
        slack.add_metric(key, facts.quorum_slack)
        if facts.leader and facts.leading:
            leader.add_metric([*key, facts.leading.pod, str(facts.leader.term)], 1)
            term.add_metric(key, facts.leader.term)
    return leader, term, slack


def _members(groups: Sequence[GroupFacts]) -> Iterable[Metric]:
    role = GaugeMetricFamily(
        "dledger_member_role", "1 for the role that the labels give.", labels=[*_MEMBER, "role"]
    )
    committed = GaugeMetricFamily(
        "dledger_member_committed_index", "What a member knows to be committed.", labels=_MEMBER
    )
    lag = GaugeMetricFamily(
        "dledger_member_lag_entries", "Entries that a member has yet to store.", labels=_MEMBER
    )
    for facts in groups:
        for member in facts.members:
            key = [facts.namespace, facts.name, member.member_id]
            _add_role(role, key, member)
            if member.status:
                committed.add_metric(key, member.status.committed_index)
            entries = facts.lag_entries(member)
            if entries is not None:
                lag.add_metric(key, entries)
    return role, committed, lag


def _add_role(role: GaugeMetricFamily, key: Sequence[str], member: MemberFacts) -> None:
    for word in (names.ROLE_MASTER, names.ROLE_SLAVE, names.ROLE_NONE):
        role.add_metric([*key, word], float(word == member.role))
