"""The operator's metrics in Prometheus' text format."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dledger_kube.objects import member, observed_group
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_state import Leader, ObservedGroup

FLIGHTS = {"namespace": "air", "group": "flights"}


def samples(metrics: OperatorMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Parse the exposition: labels and values by sample name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def shown(of: ObservedGroup) -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.count_double_masters("air", "flights", 0)
    metrics.update_group(of)
    return metrics


def test_a_group_and_its_leader_are_exported() -> None:
    running = (member(0, image="node:2", behind="image"), member(1, image="node:1"), member(2))
    read = samples(shown(observed_group(members=running)))

    assert read["dledger_group_pods_behind"] == [(FLIGHTS, 1.0)]
    assert read["dledger_group_info"] == [
        (FLIGHTS | {"replicas": "3", "image": "node:1", "flush_disk_type": "SyncFlush"}, 1.0)
    ]
    assert read["dledger_group_leader"] == [(FLIGHTS | {"pod": "flights-1"}, 1.0)]
    assert read["dledger_group_term"] == [(FLIGHTS, 7.0)]
    assert read["dledger_group_quorum_slack"] == [(FLIGHTS, 1.0)]


def test_a_new_leader_replaces_the_old_one() -> None:
    metrics = shown(observed_group())
    metrics.update_group(observed_group(leader=Leader(term=8, member_id="n2")))

    read = samples(metrics)

    assert read["dledger_group_leader"] == [(FLIGHTS | {"pod": "flights-2"}, 1.0)]


def test_a_group_without_a_leader_has_no_leader_series() -> None:
    assert "dledger_group_leader" not in samples(shown(observed_group(leader=None)))


def test_the_role_index_and_lag_of_members_are_exported() -> None:
    read = samples(shown(observed_group()))

    roles = {
        labels["member"]: labels["role"]
        for labels, value in read["dledger_member_role"]
        if value == 1.0
    }
    assert roles == {"n0": "slave", "n1": "master", "n2": "slave"}
    assert (FLIGHTS | {"member": "n2"}, 10.0) in read["dledger_member_lag_entries"]
    assert (FLIGHTS | {"member": "n0"}, 99.0) in read["dledger_member_committed_index"]


def test_a_silent_member_has_no_committed_index() -> None:
    lost = member(2, ready=False, reason="no answer", status=None)
    read = samples(shown(observed_group(members=(member(0), member(1), lost))))

    assert "n2" not in [labels["member"] for labels, _ in read["dledger_member_committed_index"]]


def test_double_masters_start_at_0_and_are_counted() -> None:
    metrics = shown(observed_group())

    assert samples(metrics)["dledger_double_master_observed_total"] == [(FLIGHTS, 0.0)]

    metrics.count_double_masters("air", "flights", 2)

    assert samples(metrics)["dledger_double_master_observed_total"] == [(FLIGHTS, 2.0)]


def test_leader_changes_are_counted_by_reason() -> None:
    metrics = shown(observed_group())
    for reason in ("LeaderLost", "LeaderLost", "PodReplaced"):
        metrics.count_leader_change("air", "flights", reason)

    assert samples(metrics)["dledger_leader_changes_total"] == [
        (FLIGHTS | {"reason": "LeaderLost"}, 2.0),
        (FLIGHTS | {"reason": "PodReplaced"}, 1.0),
    ]


def test_the_series_of_a_deleted_group_are_removed() -> None:
    metrics = shown(observed_group())
    metrics.update_group(observed_group(name="other"))
    metrics.count_leader_change("air", "flights", "LeaderLost")
    metrics.remove_group("air", "flights")

    groups = {
        labels["group"]
        for series in samples(metrics).values()
        for labels, _ in series
        if "group" in labels
    }
    assert groups == {"other"}


def test_failover_times_have_buckets_around_a_second() -> None:
    metrics = OperatorMetrics()
    metrics.failover_s.labels("air", "flights", "total").observe(0.9)

    buckets = {
        float(labels["le"]): value
        for labels, value in samples(metrics)["dledger_failover_seconds_bucket"]
    }
    assert buckets[0.5] == 0.0
    assert buckets[1.0] == 1.0


def test_the_failover_times_of_a_deleted_group_are_removed() -> None:
    metrics = OperatorMetrics()
    metrics.failover_s.labels("air", "flights", "total").observe(0.9)
    metrics.failover_s.labels("air", "trains", "total").observe(0.9)

    metrics.remove_group("air", "flights")

    left = {labels["group"] for labels, _ in samples(metrics)["dledger_failover_seconds_bucket"]}
    assert left == {"trains"}
