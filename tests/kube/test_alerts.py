"""The chart's alerts: what they ask of Prometheus, and where they send a person."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from api_server.client import Helm
from dledger_formats.audit import Verdict
from dledger_kube.objects import NOW, observed_group
from dledger_must_run.lacking import skip_or_fail
from dledger_must_run.promtool import find as find_promtool
from dledger_operator.conditions import of_group
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_audits import EndedAudit, ObservedAudits
from dledger_operator.observed_state import AuditFinding

pytest_plugins = ["api_server.fixtures"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dledger-operator"
ALERTS = ROOT / "docs" / "operations" / "alerts.md"
KIND = "--api-versions=monitoring.coreos.com/v1/PrometheusRule"
ENABLED = "--set=monitoring.prometheusRule.enabled=true"
RELEASE = "ops/dl-dledger-operator"
"""The namespace and the name of the release whose chart is tested."""
SERIES = re.compile(r"\b(dledger_[a-z_]+)(?:\{(.*?)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|=)"([^"]*)"')


@pytest.fixture(scope="module")
def spec(helm: Helm) -> dict[str, Any]:
    found = rules(helm, ENABLED, KIND)
    assert found is not None
    return found


def rules(helm: Helm, *options: str) -> dict[str, Any] | None:
    version = "--kube-version=1.29.0"
    text = helm("template", "dl", str(CHART), "--namespace=ops", version, *options)
    found = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "PrometheusRule"]
    return found[0]["spec"] if found else None


def alerts(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in spec["groups"]:
        yield from group["rules"]


def test_alerts_are_made_only_if_asked_for_and_where_the_kind_exists(helm: Helm) -> None:
    assert rules(helm, KIND) is None
    assert rules(helm, ENABLED) is None
    assert rules(helm, ENABLED, KIND) is not None


def exposed() -> dict[str, set[str]]:
    """The labels of every sample that the operator exposes, by the sample's name."""
    metrics = OperatorMetrics(clock=lambda: 0.0)
    finding = AuditFinding(audit="a", verdict=Verdict.SOUND, message="", started_at=NOW)
    last = EndedAudit(audit="a", result="Sound", message="", started_at=NOW, ended_at=NOW)
    observed = observed_group(audit=finding, audits=ObservedAudits(last=last))
    metrics.update_group(observed, of_group.build(observed, previous=(), now=NOW, generation=1))
    names = {
        sample.name: set(sample.labels)
        for family in metrics.registry.collect()
        for sample in family.samples
    }
    families = {
        f"{each.name}_total" if each.type == "counter" else each.name: set[str]()
        for each in metrics.registry.collect()
    }
    return families | names


def test_every_alert_asks_for_metrics_and_labels_that_the_operator_exposes(
    spec: dict[str, Any],
) -> None:
    known = exposed()
    for alert in alerts(spec):
        asked = SERIES.findall(alert["expr"])
        assert asked, alert["expr"]
        for name, matchers in asked:
            assert name in known, alert["expr"]
            if known[name]:
                assert {label for label, _ in MATCHER.findall(matchers)} <= known[name]


def test_the_values_that_alerts_match_are_values_that_occur(spec: dict[str, Any]) -> None:
    docs = ROOT / "docs"
    pages = [docs / "metrics.md", docs / "operations.md", *(docs / "operations").glob("*.md")]
    page = "".join(each.read_text() for each in pages)
    storage = (ROOT / "formats/dledger_formats/http/status.py").read_text()
    for alert in alerts(spec):
        for label, values in MATCHER.findall(alert["expr"]):
            if label == "release":
                assert values == RELEASE
                continue
            for value in values.split("|"):
                assert f"`{value}`" in page or f'"{value}"' in storage, alert["expr"]


def test_every_alert_has_a_severity_a_summary_and_a_paragraph_of_the_runbook(
    spec: dict[str, Any],
) -> None:
    headings = {
        line.lstrip("# ").lower() for line in ALERTS.read_text().splitlines() if line[:3] == "## "
    }
    names = [alert["alert"] for alert in alerts(spec)]
    assert len(set(names)) == len(names)
    for alert in alerts(spec):
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert (page, anchor) == ("docs/operations/alerts.md", alert["alert"].lower())
        assert anchor in headings
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"]["summary"].endswith(".")


def test_a_prometheus_can_select_the_rules_by_labels(helm: Helm) -> None:
    label = "--set=monitoring.prometheusRule.labels.prometheus=main"
    text = helm("template", "dl", str(CHART), "--kube-version=1.29.0", ENABLED, KIND, label)
    made = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "PrometheusRule"]

    assert made[0]["metadata"]["labels"]["prometheus"] == "main"


def test_the_thresholds_and_the_runbook_are_values(helm: Helm) -> None:
    given = (
        "archiveCopyMinutes=90", "volumeUsedPercent=70", "lagEntries=2000000",
        "runbook=https://wiki.example/dledger",
    )  # fmt: skip
    options = [f"--set=monitoring.prometheusRule.{each}" for each in given]
    made = rules(helm, ENABLED, KIND, *options)
    assert made is not None
    by_name = {alert["alert"]: alert for alert in alerts(made)}

    assert by_name["DLedgerArchiveCopyLate"]["for"] == "90m"
    assert by_name["DLedgerVolumeNearlyFull"]["expr"].endswith("> 0.7")
    assert by_name["DLedgerFollowerLags"]["expr"].endswith("> 2000000")
    address = by_name["DLedgerNoLeader"]["annotations"]["runbook_url"]
    assert address == "https://wiki.example/dledger#dledgernoleader"


def test_what_keeps_the_alert_of_a_missing_leader_silent_raises_another_one_if_it_lasts(
    spec: dict[str, Any],
) -> None:
    """The copy of an archive may hang. A group hibernates because its spec says so."""
    by_name = {alert["alert"]: alert for alert in alerts(spec)}
    _, _, silenced_by = by_name["DLedgerNoLeader"]["expr"].partition(" unless ")
    asked = {name for name, _ in SERIES.findall(silenced_by)} - {"dledger_group_hibernates"}

    assert asked == {"dledger_group_copies_archive"}
    late = by_name["DLedgerArchiveCopyLate"]
    assert late["expr"] == "dledger_group_copies_archive == 1"
    assert late["for"] == "60m"


@pytest.fixture
def promtool() -> str:
    return find_promtool() or skip_or_fail("promtool is missing: run `make setup`, or install it")


def test_promtool_takes_the_rules(promtool: str, spec: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(spec))

    checked = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {sum(1 for _ in alerts(spec))} rules found" in checked.stdout


def test_promtool_takes_the_metrics(promtool: str) -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    observed = observed_group()
    metrics.update_group(observed, of_group.build(observed, previous=(), now=NOW, generation=1))

    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=generate_latest(metrics.registry),
        capture_output=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


SERIES_OF_A_GROUP = {"namespace": "air", "group": "flights"}


def lease_held(pod: str, release: str = RELEASE) -> str:
    return f'dledger_operator_lease_held{{pod="{pod}",release="{release}"}}'


def labeled(name: str, **labels: str) -> str:
    shown = ",".join(f'{key}="{value}"' for key, value in (SERIES_OF_A_GROUP | labels).items())
    return f"{name}{{{shown}}}"


CASES = {
    "DLedgerNoLeader": ({labeled("dledger_group_condition", condition="LeaderElected"): "0x20"}, 5),
    "DLedgerArchiveCopyLate": ({labeled("dledger_group_copies_archive"): "1x90"}, 65),
    "DLedgerMasterServiceWrong": ({labeled("dledger_group_endpoints_wrong"): "1x20"}, 5),
    "DLedgerDoubleMaster": ({labeled("dledger_double_master_observed_total"): "0 0 1x20"}, 5),
    "DLedgerAcknowledgementLost": (
        {labeled("dledger_canary_lost_acknowledgements_total"): "0 0 1x20"}, 5,
    ),
    "DLedgerMemberDamaged": (
        {labeled("dledger_member_storage", member="n2", state="Failed"): "1x20"}, 5,
    ),
    "DLedgerVolumeNearlyFull": (
        {labeled("dledger_member_volume_used_ratio", member="n2"): "0.86x20"}, 10,
    ),
    "DLedgerFollowerLags": (
        {labeled("dledger_member_lag_entries", member="n2"): "100001x20"}, 15,
    ),
    "DLedgerBrokerNotServing": (
        {labeled("dledger_group_condition", condition="BrokerServing"): "0x20"}, 5,
    ),
    "DLedgerBrokerNotRegistered": (
        {
            labeled("dledger_group_broker_registered", name_server="names:9876"): "2x20",
            labeled("dledger_group_broker_members"): "3x20",
        },
        15,
    ),
    "DLedgerBrokerQueuesLag": (
        {labeled("dledger_member_broker_unbuilt_entries", member="n2"): "100001x20"}, 15,
    ),
    "DLedgerGroupDegraded": (
        {labeled("dledger_group_condition", condition="Degraded"): "1x20"}, 16,
    ),
    "DLedgerAuditFoundDamage": (
        {labeled("dledger_group_audit_finding", verdict="Diverged"): "1x20"}, 5,
    ),
    "DLedgerAuditFailed": (
        {labeled("dledger_group_last_audit", result="Incomplete"): "1x90"}, 70,
    ),
    "DLedgerOperatorNotWatching": (
        {'dledger_operator_watch_behind_seconds{kind="DLedgerGroup"}': "61x20"}, 5,
    ),
    "DLedgerNamespaceLeftOut": (
        {'dledger_operator_namespaces_left_out{pod="b"}': "1x20"}, 10,
    ),
    "DLedgerOperatorMissing": ({lease_held("a"): "0x20"}, 5),
}  # fmt: skip
"""Series that raise each alert, one value a minute, and the minute by which it is raised."""
SLEEPS = {
    labeled("dledger_group_condition", condition="LeaderElected"): "0x20",
    labeled("dledger_group_condition", condition="BrokerServing"): "0x20",
    labeled("dledger_group_hibernates"): "1x20",
}
COPIES = {
    labeled("dledger_group_condition", condition="LeaderElected"): "0x20",
    labeled("dledger_group_hibernates"): "0x20",
    labeled("dledger_group_copies_archive"): "1x20",
}
REGISTERED = {
    labeled("dledger_group_broker_registered", name_server="names:9876"): "3x20",
    labeled("dledger_group_broker_members"): "3x20",
}
DAMAGED_BEFORE_THE_LAST_AUDIT = {
    labeled("dledger_group_audit_finding", verdict="Damaged"): "1x20",
    labeled("dledger_group_last_audit", result="Damaged"): "1x5 0x14",
}
WAITS_FOR_LEADER = COPIES | {labeled("dledger_group_copies_archive"): "1x5 0x14"}


def test_each_alert_is_raised_by_what_it_is_about(
    promtool: str, spec: dict[str, Any], tmp_path: Path
) -> None:
    acting = {lease_held("b"): "1x90"}
    tests = [
        raised(name, series | (acting if name != "DLedgerOperatorMissing" else {}), minute)
        for name, (series, minute) in CASES.items()
    ]
    tests += [never("DLedgerNoLeader", series | acting) for series in (SLEEPS, COPIES)]
    tests += [never("DLedgerBrokerNotServing", SLEEPS | acting)]
    tests += [never("DLedgerBrokerNotRegistered", REGISTERED | acting)]
    tests += [raised("DLedgerNoLeader", WAITS_FOR_LEADER | acting, 9)]
    elsewhere = {lease_held("c", "elsewhere/dl-dledger-operator"): "1x20"}
    tests += [raised("DLedgerOperatorMissing", elsewhere, 5)]
    tests += [raised("DLedgerAuditFoundDamage", DAMAGED_BEFORE_THE_LAST_AUDIT | acting, 15)]
    assert CASES.keys() == {alert["alert"] for alert in alerts(spec)}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))

    tested = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert tested.returncode == 0, tested.stdout + tested.stderr


def raised(name: str, series: dict[str, str], minute: int) -> dict[str, Any]:
    """A test of promtool: the alert is raised then, and no other one is."""
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
            {"expr": f'ALERTS{{alertname!="{name}"}}', "eval_time": f"{minute}m"},
        ],
    }


def never(name: str, series: dict[str, str]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [{"expr": f'ALERTS{{alertname="{name}"}}', "eval_time": "15m"}],
    }
