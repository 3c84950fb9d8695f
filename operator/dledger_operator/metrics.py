"""The operator's metrics.

Group metrics are built from the last observed state at scrape time, so the series of a deleted
group disappear with the group.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, Metric
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dledger_formats.audit import Verdict
from dledger_operator import member_metrics, observed_broker, reasons
from dledger_operator.canary_metrics import CanaryMetrics
from dledger_operator.observed_audits import FAILED
from dledger_operator.observed_state import DECIDING, ObservedGroup

FAILOVER_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
FAILOVER_PHASES: Final = ("detect", "elect", "relabel", "endpoints", "total", "firstWrite")
# During a failover the endpoints differ from the leader for a moment.
ENDPOINTS_WRONG_S_MIN: Final = 5.0
_GROUP: Final = ("namespace", "group")


@dataclass(slots=True)
class _GroupSeries:
    """The exported state of one group."""

    observed: ObservedGroup | None = None
    conditions: Sequence[Mapping[str, Any]] = ()
    endpoints_wrong_since_s: float | None = None
    """None while the endpoints are the leader's, or while there is no leader."""
    leader_changes: Counter[str] = field(default_factory=Counter)
    double_masters: int = 0


def _counters_of_ends(registry: CollectorRegistry) -> tuple[PrometheusCounter, ...]:
    """Return the counters of objects that have ended: audits, switchovers, replacements."""
    counters = {
        "audits": (
            "verdict",
            "Finished audits by verdict; verdict=Failed counts audits that ended without one.",
        ),
        "switchovers": (
            "reason",
            "Finished DLedgerSwitchovers by the reason of their end; SwitchedOver is a success.",
        ),
        "replacements": (
            "reason",
            "Finished DLedgerReplaces by the reason of their end; Replaced is a success.",
        ),
    }
    return tuple(
        PrometheusCounter(f"dledger_{name}", text, [label], registry=registry)
        for name, (label, text) in counters.items()
    )


class OperatorMetrics(Collector):
    """All metrics of the operator, in a registry of their own."""

    def __init__(self, *, clock: Callable[[], float], release: str = "") -> None:
        """Create empty metrics; `clock` returns monotonic seconds. `release` is as in `LeaseNames`;
        empty for a process that holds no Lease.
        """
        self.registry = CollectorRegistry(auto_describe=False)
        self._clock = clock
        self._groups: dict[tuple[str, str], _GroupSeries] = {}
        self.failover_s = Histogram(
            "dledger_failover_seconds",
            "Duration of a leader change by phase; total is the sum of detect to endpoints.",
            [*_GROUP, "phase"],
            buckets=FAILOVER_BUCKETS_S,
            registry=self.registry,
        )
        self.reconcile_s = Histogram(
            "dledger_reconcile_seconds",
            "Time to apply all child objects of a group, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.failures = PrometheusCounter(
            "dledger_operator_failures",
            "Failed runs of a control loop, by loop; each one is retried.",
            ["behavior"],
            registry=self.registry,
        )
        self.conflicts = PrometheusCounter(
            "dledger_operator_conflicts",
            "Writes refused because the object had changed, by loop; each one is decided again.",
            ["behavior"],
            registry=self.registry,
        )
        self.handovers = PrometheusCounter(
            "dledger_handovers",
            "Transfers that the operator asked for, to empty a node or for the preferred leader.",
            ["reason"],
            registry=self.registry,
        )
        self.audits, self.switchovers, self.replacements = _counters_of_ends(self.registry)
        self.canaries = CanaryMetrics(self.registry)
        self.switchover_s = Histogram(
            "dledger_switchover_seconds",
            "From the request to the leader until the target of a switchover leads.",
            buckets=FAILOVER_BUCKETS_S,
            registry=self.registry,
        )
        self.lease_held = Gauge(
            "dledger_operator_lease_held",
            "1 on the replica that does everything, 0 on the others, which only follow leaders.",
            ["release"],
            registry=self.registry,
        ).labels(release)
        self.namespaces_of_others = Gauge(
            "dledger_operator_namespaces_of_others",
            "Namespaces with groups that another release manages, so that this one does not.",
            registry=self.registry,
        )
        self.namespaces_left_out = Gauge(
            "dledger_operator_namespaces_left_out",
            "Namespaces of watchNamespaces that this process may not read and leaves out.",
            registry=self.registry,
        )
        self._watch_behind = Gauge(
            "dledger_operator_watch_behind_seconds",
            "For how long the watch of a kind has missed a change; 0 if it is up to date.",
            ["kind"],
            registry=self.registry,
        )
        self.registry.register(self)

    def update_group(
        self, observed: ObservedGroup, conditions: Sequence[Mapping[str, Any]]
    ) -> None:
        """Replace the exported state of a group; `conditions` are those of its status."""
        series = self._series(observed.namespace, observed.name)
        series.observed, series.conditions = observed, conditions
        endpoints = observed.endpoints
        if endpoints.synced is not False or endpoints.reason == reasons.NO_LEADER:
            series.endpoints_wrong_since_s = None
        elif series.endpoints_wrong_since_s is None:
            series.endpoints_wrong_since_s = self._clock()

    def set_watch_behind(self, kind: str, seconds: float) -> None:
        """Record for how long the watch of a kind is behind."""
        self._watch_behind.labels(kind).set(seconds)

    def remove_group(self, namespace: str, group: str) -> None:
        """Drop all series of a deleted group."""
        self._groups.pop((namespace, group), None)
        for phase in FAILOVER_PHASES:
            with contextlib.suppress(KeyError):
                self.failover_s.remove(namespace, group, phase)
        self.canaries.remove_group(namespace, group)

    def count_leader_change(self, namespace: str, group: str, reason: str) -> None:
        """Count one leader change."""
        self._series(namespace, group).leader_changes[reason] += 1

    def count_double_masters(self, namespace: str, group: str, count: int) -> None:
        """Count double masters, which must never occur; a count of 0 creates the series."""
        self._series(namespace, group).double_masters += count

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families of all groups. Any thread may call this: what the event
        loop changes meanwhile is copied or read once.
        """
        groups = dict(self._groups)
        known = [seen for series in groups.values() if (seen := series.observed)]
        yield _info(known)
        yield from _leadership(known)
        yield from member_metrics.families(known)
        yield from _brokers(known)
        yield _conditions(groups)
        yield from _audits(known)
        yield _endpoints_wrong(groups, self._clock())
        changes = CounterMetricFamily(
            "dledger_leader_changes", "Leader changes by reason.", labels=[*_GROUP, "reason"]
        )
        doubles = CounterMetricFamily(
            "dledger_double_master_observed",
            "Times that two pods had the master role label at once. Must stay 0.",
            labels=_GROUP,
        )
        for key, series in groups.items():
            for reason, count in dict(series.leader_changes).items():
                changes.add_metric([*key, reason], count)
            doubles.add_metric(key, series.double_masters)
        yield from (changes, doubles)

    def _series(self, namespace: str, group: str) -> _GroupSeries:
        return self._groups.setdefault((namespace, group), _GroupSeries())


def _info(known: Sequence[ObservedGroup]) -> Metric:
    """Return what the leader runs or, without its answer, the first member that answers."""
    info = GaugeMetricFamily(
        "dledger_group_info",
        "What the leader runs, as labels; the value is always 1.",
        labels=[*_GROUP, "replicas", "image", "flush_disk_type"],
    )
    for observed in known:
        running = [*filter(None, [observed.leading]), *observed.members]
        answer = next((each for each in running if each.status), None)
        flush = answer.status.flush_disk_type.value if answer and answer.status else ""
        labels = [str(observed.replicas), answer.image if answer else "", flush]
        info.add_metric([observed.namespace, observed.name, *labels], 1)
    return info


def _leadership(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    leader = GaugeMetricFamily(
        "dledger_group_leader", "1 for the leader's pod.", labels=[*_GROUP, "pod"]
    )
    term = GaugeMetricFamily("dledger_group_term", "Term of the current leader.", labels=_GROUP)
    slack = GaugeMetricFamily(
        "dledger_group_quorum_slack",
        "Ready voters beyond a majority; below 0 the group cannot commit.",
        labels=_GROUP,
    )
    behind = GaugeMetricFamily(
        "dledger_group_pods_behind", "Pods that do not run what the spec asks for.", labels=_GROUP
    )
    hibernates = GaugeMetricFamily(
        "dledger_group_hibernates",
        "1 while the group has no pods, because spec.hibernate asks for it.",
        labels=_GROUP,
    )
    copies = GaugeMetricFamily(
        "dledger_group_copies_archive",
        "1 while members of a new group copy the archive of spec.seed, before it has a leader.",
        labels=_GROUP,
    )
    for observed in groups:
        key = [observed.namespace, observed.name]
        hibernates.add_metric(key, float(observed.hibernates))
        copies.add_metric(key, float(observed.copies_archive))
        behind.add_metric(key, len(observed.behind))
        slack.add_metric(key, observed.quorum_slack)
        if observed.leader and observed.leading:
            leader.add_metric([*key, observed.leading.pod], 1)
            term.add_metric(key, observed.leader.term)
    return leader, term, slack, behind, hibernates, copies


def _brokers(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    serving = GaugeMetricFamily(
        "dledger_group_broker_members",
        "Ready members that take clients of the RocketMQ broker.",
        labels=_GROUP,
    )
    registered = GaugeMetricFamily(
        "dledger_group_broker_registered",
        "Members of the broker that are registered at a name server.",
        labels=[*_GROUP, "name_server"],
    )
    for observed in groups:
        if observed.broker is None:
            continue
        key = [observed.namespace, observed.name]
        serving.add_metric(key, len(observed_broker.serving(observed)))
        for each in observed_broker.name_servers(observed):
            registered.add_metric([*key, each.address], len(each.registered))
    return serving, registered


def _conditions(groups: Mapping[tuple[str, str], _GroupSeries]) -> Metric:
    conditions = GaugeMetricFamily(
        "dledger_group_condition",
        "1 while a condition of the group is True, 0 while it is False or Unknown.",
        labels=[*_GROUP, "condition"],
    )
    for key, series in groups.items():
        for each in series.conditions:
            conditions.add_metric([*key, each["type"]], float(each["status"] == "True"))
    return conditions


def _audits(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    result = GaugeMetricFamily(
        "dledger_group_last_audit",
        "1 for the result of the group's last audit, 0 for others; Failed is one without verdict.",
        labels=[*_GROUP, "result"],
    )
    finding = GaugeMetricFamily(
        "dledger_group_audit_finding",
        "1 for the verdict of the group's last conclusive audit, 0 for others.",
        labels=[*_GROUP, "verdict"],
    )
    ended = GaugeMetricFamily(
        "dledger_group_last_audit_timestamp_seconds",
        "When the group's last audit ended, in seconds since 1970.",
        labels=_GROUP,
    )
    for observed in groups:
        key, last = [observed.namespace, observed.name], observed.audits.last
        if observed.audit is not None:
            for verdict in DECIDING:
                finding.add_metric([*key, verdict], float(verdict is observed.audit.verdict))
        if last is None:
            continue
        ended.add_metric(key, last.ended_at.timestamp())
        for each in (*Verdict, FAILED):
            result.add_metric([*key, each], float(each == last.result))
    return finding, result, ended


def _endpoints_wrong(groups: Mapping[tuple[str, str], _GroupSeries], now_s: float) -> Metric:
    wrong = GaugeMetricFamily(
        "dledger_group_endpoints_wrong",
        "1 while the master Service has had other endpoints than the leader for more than 5 s.",
        labels=_GROUP,
    )
    for key, series in groups.items():
        since_s = series.endpoints_wrong_since_s
        lasts = since_s is not None and now_s - since_s > ENDPOINTS_WRONG_S_MIN
        if series.observed:
            wrong.add_metric(key, float(lasts))
    return wrong
