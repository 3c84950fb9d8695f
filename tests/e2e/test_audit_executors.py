"""Audits with executors in pods: the same verdict, and an end where no executor can start.

The machine of the tests is small: an executor requests a tenth of a CPU here.
"""

import json
from typing import Any

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.group import Group
from dledger_e2e.load import Load
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="audits on the cluster"),
]
SMALL = {"requests": {"cpu": "100m"}, "limits": {"memory": "1200Mi"}}
DRIVER = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
EXECUTOR = "app.kubernetes.io/component=audit-executor"
RESULT = ("verdict", "findings", "firstFindings")
GONE_S = 60.0


def executors(group: Group, name: str) -> list[dict[str, Any]]:
    """Return the pods of an audit's executors that are left."""
    found = group.get("pods", f"--selector={EXECUTOR},dledger.io/audit={name}")
    pods: list[dict[str, Any]] = found["items"]
    return pods


def test_two_executors_give_the_verdict_of_one_pod_and_an_impossible_quota_ends_the_audit(
    group: Group,
) -> None:
    with Load(group, per_second=3_000, body_bytes=2_000) as load:
        load.wait_for_more(10_000, timeout_s=120)  # more than one segment of 16 MiB

    spread = audit(group, "spread", resources=DRIVER, executors={"max": 2, "resources": SMALL})
    alone = audit(group, "alone", resources=DRIVER)

    assert spread["phase"] == "Finished", json.dumps(spread)
    assert [spread[each] for each in RESULT] == [alone[each] for each in RESULT]
    assert spread["verdict"] == "Sound"
    assert spread["entries"] == alone["entries"]
    log = group.kubectl("logs", "job/spread-audit")
    assert "2 of 2 executors of Spark run" in log
    wait_for(lambda: not executors(group, "spread"), "no executor is left", GONE_S)

    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        # Room for the pods that run and the driver, not for the memory of an executor.
        "spec": {"hard": {"limits.memory": "3Gi"}},
    }
    group.deployment.kubernetes.apply(quota, f"--namespace={group.namespace}")
    refused = audit(
        group,
        "refused",
        resources=DRIVER,
        executors={
            "max": 2,
            "startWithin": "10s",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "8Gi"}},
        },
    )

    assert refused["phase"] == "Failed", json.dumps(refused)
    condition = refused["conditions"][0]
    assert condition["reason"] == "NoExecutors"
    assert "pod is refused" in condition["message"]
    assert "exceeded quota: none" in condition["message"]
