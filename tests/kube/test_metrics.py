"""The operator's metrics in Prometheus' text format."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dledger_formats.http.status import StorageState
from dledger_kube.objects import NOW, member, node_status, observed_group
from dledger_operator.behaviors.context import Context
from dledger_operator.clients.errors import ConflictError, UnavailableError
from dledger_operator.conditions import of_group
from dledger_operator.metrics import ENDPOINTS_WRONG_S_MIN, OperatorMetrics
from dledger_operator.observed_state import Leader, ObservedEndpoints, ObservedGroup

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
FLIGHTS = {"namespace": "air", "group": "flights"}


def samples(metrics: OperatorMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Parse the exposition: labels and values by sample name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def shown(of: ObservedGroup) -> OperatorMetrics:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    metrics.count_double_masters("air", "flights", 0)
    update(metrics, of)
    return metrics


def update(metrics: OperatorMetrics, of: ObservedGroup) -> None:
    conditions = of_group.build(of, previous=(), now=NOW, generation=1)
    metrics.update_group(of, conditions)


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
    update(metrics, observed_group(leader=Leader(term=8, member_id="n2")))

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


def test_the_state_and_the_use_of_volumes_are_exported() -> None:
    full = member(0, status=node_status(storage=StorageState.FULL))
    half = node_status("n1", volume_size_bytes=1_000, volume_available_bytes=250)
    lost = member(2, ready=False, reason="no answer", status=None)
    read = samples(shown(observed_group(members=(full, member(1, status=half), lost))))

    states = {
        labels["member"]: labels["state"]
        for labels, value in read["dledger_member_storage"]
        if value == 1.0
    }
    assert states == {"n0": "Full", "n1": "Sound"}
    assert read["dledger_member_volume_used_ratio"] == [(FLIGHTS | {"member": "n1"}, 0.75)]


def test_a_group_that_hibernates_says_so() -> None:
    gone = tuple(member(each, exists=False, ready=False, status=None) for each in range(3))

    for members, hibernates in ((gone, 1.0), ((member(0), *gone[1:]), 0.0)):
        read = samples(shown(observed_group(hibernate=True, members=members)))
        assert read["dledger_group_hibernates"] == [(FLIGHTS, hibernates)]


@pytest.mark.parametrize("copies", [True, False])
def test_a_group_that_copies_its_archive_says_so(copies: bool) -> None:
    read = samples(shown(observed_group(copies_archive=copies)))

    assert read["dledger_group_copies_archive"] == [(FLIGHTS, float(copies))]


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


def test_a_conflict_is_no_failure() -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    context = cast("Context", SimpleNamespace(metrics=metrics))

    Context.count_failure(context, "scale", ConflictError("it has changed"))
    Context.count_failure(context, "scale", UnavailableError("no answer"))
    Context.count_failure(context, "scale", ValueError("a bug"))

    read = samples(metrics)
    assert read["dledger_operator_conflicts_total"] == [({"behavior": "scale"}, 1.0)]
    assert read["dledger_operator_failures_total"] == [({"behavior": "scale"}, 2.0)]


def test_the_series_of_a_deleted_group_are_removed() -> None:
    metrics = shown(observed_group())
    update(metrics, observed_group(name="other"))
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
    metrics = OperatorMetrics(clock=lambda: 0.0)
    metrics.failover_s.labels("air", "flights", "total").observe(0.9)

    buckets = {
        float(labels["le"]): value
        for labels, value in samples(metrics)["dledger_failover_seconds_bucket"]
    }
    assert buckets[0.5] == 0.0
    assert buckets[1.0] == 1.0


def test_the_failover_times_of_a_deleted_group_are_removed() -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    metrics.failover_s.labels("air", "flights", "total").observe(0.9)
    metrics.failover_s.labels("air", "trains", "total").observe(0.9)

    metrics.remove_group("air", "flights")

    left = {labels["group"] for labels, _ in samples(metrics)["dledger_failover_seconds_bucket"]}
    assert left == {"trains"}


def test_every_condition_is_a_gauge() -> None:
    read = samples(shown(observed_group(paused=True)))

    assert {
        labels["condition"]: value
        for labels, value in read["dledger_group_condition"]
        if labels["group"] == "flights"
    } == {
        "Ready": 1.0, "LeaderElected": 1.0, "QuorumHealthy": 1.0, "EndpointsSynced": 1.0,
        "Degraded": 0.0, "Progressing": 0.0, "LeaderPlaced": 1.0, "AuditPassed": 0.0,
            "Paused": 1.0,
    }  # fmt: skip


def test_endpoints_are_wrong_once_they_differ_from_the_leader_for_five_seconds() -> None:
    now_s = 100.0
    metrics = OperatorMetrics(clock=lambda: now_s)

    def wrong(reason: str) -> float:
        judged = ObservedEndpoints(synced=reason == "LeaderOnly", reason=reason, message="")
        update(metrics, observed_group(endpoints=judged))
        return samples(metrics)["dledger_group_endpoints_wrong"][0][1]

    assert wrong("LeaderOnly") == 0.0
    assert wrong("WrongEndpoints") == 0.0
    now_s += ENDPOINTS_WRONG_S_MIN + 0.1
    assert samples(metrics)["dledger_group_endpoints_wrong"][0][1] == 1.0, "without another update"
    assert wrong("NoEndpoints") == 1.0, "still not right"
    assert wrong("NoLeader") == 0.0, "nothing to point at"
    assert wrong("WrongEndpoints") == 0.0, "counted anew"


def test_the_page_lists_every_metric_of_the_operator_with_its_type_and_help() -> None:
    row = r"^\| `(dledger_(?!node_|broker_)[a-z_]+)(?:\{[a-z, _]+\})?` \| (\w+) \| (.+) \|$"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)

    families = OperatorMetrics(clock=lambda: 0.0).registry.collect()
    assert rows == sorted(
        (f"{each.name}_total" if each.type == "counter" else each.name, each.type,
         each.documentation)
        for each in families
    )  # fmt: skip


def test_no_label_grows_with_every_election_or_append() -> None:
    one, other = (
        shown(observed_group()),
        shown(observed_group(leader=Leader(term=8, member_id="n1"))),
    )

    assert labels_of(one) == labels_of(other)


def labels_of(metrics: OperatorMetrics) -> set[tuple[str, str]]:
    read = samples(metrics)
    return {(name, str(sorted(labels.items()))) for name in read for labels, _ in read[name]}
