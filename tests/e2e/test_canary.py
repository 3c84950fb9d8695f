"""Canaries through a real Service, while the leader dies and the group is audited."""

import re

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.failovers import acting_operator
from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for
from tools.deployment import CLIENT_POD, OPERATOR_NAMESPACE

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]


def counted(group: Group, name: str, **labels: str) -> float:
    """Return the value of a canary's metric at the operator that acts; 0 without a series."""
    page = group.deployment.kubernetes.page(
        OPERATOR_NAMESPACE, acting_operator(group), 8080, "/metrics"
    )
    wanted = {f'namespace="{group.namespace}"'} | {f'{key}="{v}"' for key, v in labels.items()}
    for line in page.splitlines():
        found = re.fullmatch(rf"dledger_canary_{name}\{{(.*)\}} (\S+)", line)
        if found and wanted <= set(found[1].split(",")):
            return float(found[2])
    return 0.0


def test_canaries_time_a_failover_and_no_reader_sees_them(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    change = '{"spec": {"canary": {"interval": "1s"}}}'
    group.kubectl("patch", "dlg", group.name, "--type=merge", f"--patch={change}")

    def acknowledged() -> float:
        return counted(group, "tests_total", outcome="acknowledged")

    wait_for(lambda: acknowledged() > 3, "canaries are acknowledged")
    assert counted(group, "available") == 1
    old = group.leader_pod()
    term = group.status()["leaderChanges"][0]["term"]
    group.delete_pod(old)

    def first_write_s() -> float | None:
        newest = group.status()["leaderChanges"][0]
        told: float | None = newest.get("firstWriteSeconds")
        return told if newest["term"] > term else None

    seconds = wait_for(first_write_s, "the status tells when the new leader took an append")
    with capsys.disabled():
        print(f"\nfirst canary after {seconds:.2f} s: {group.status()['leaderChanges'][0]}")
    before = acknowledged()
    wait_for(lambda: acknowledged() > before + 3, "canaries are acknowledged again")
    assert counted(group, "lost_acknowledgements_total") == 0
    assert counted(group, "tests_total", outcome="lost") == 0

    at_servers = (f"--servers={group.name}-nodes:40911", f"--group={group.name}")
    group.kubectl("exec", CLIENT_POD, "--", "dledger", "append", "--body", "ours", *at_servers)
    lines = group.kubectl(
        "exec", CLIENT_POD, "--", "dledger", "tail", "--from=0", "--count=1", *at_servers
    )
    assert lines.split() == ["ours"]
    assert audit(group, "with-canaries")["verdict"] == "Sound"
