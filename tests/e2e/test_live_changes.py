"""Changes of a group under load that wait, or that replace no pod at all."""

from typing import Any

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short, summary
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.rolls import ROLLED_S
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

PAUSE_S_MAX = 10.0
LOG_BYTES_MAX = 48 << 20
"""Three segments."""
LIVE = {"DLEDGER_RETENTION_BYTES": str(LOG_BYTES_MAX), "DLEDGER_PENDING_REQUESTS_MAX": "5000"}
DELIVERED_S = 180.0
"""A kubelet takes about a minute until the pods have the file with the live settings."""


def test_live_settings_replace_no_pod_and_resources_wait_for_their_approval(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    before = group.uids()
    with PodWatch(group) as watch, Load(group, per_second=500, body_bytes=4_000) as load:
        load.wait_for_more(500)
        first = wait_for(lambda: fronts(group), "every member answers")
        group.change(
            log={"retention": {"maxBytes": str(LOG_BYTES_MAX)}}, limits={"pendingAppends": 5000}
        )
        wait_for(lambda: all_have_in_force(group, LIVE), "members have the settings", DELIVERED_S)
        wait_for(
            lambda: all(first[pod] < front for pod, front in (fronts(group) or first).items()),
            "every member has removed the front of its log",
            DELIVERED_S,
        )
        assert (group.uids(), group.restarts()) == (before, 0)

        since = len(load.acknowledged)
        group.change(updatePolicy="OnApproval", resources={"requests": {"cpu": "60m"}})
        revision = wait_for(lambda: revision_to_approve(group), "the change waits for approval")
        remade = min(set(before) - {group.leader_pod()})
        group.kubectl("delete", "pod", remade)
        wait_for(lambda: group.uids().get(remade, before[remade]) != before[remade], "it is back")
        group.wait_until_whole()
        assert requested(group) == {"50m"}, "the pod is of the template before the change"
        approve(group, revision)
        wait_for(group.is_as_asked, "every pod runs what the spec asks for", ROLLED_S)
        assert requested(group) == {"60m"}
        load.wait_for_more(200)
        gap_s = load.longest_pause_s(since)

    with capsys.disabled():
        print(f"\na pod made again and a roll: {summary([gap_s])}; fronts {fronts(group)}")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert_pauses_are_short([gap_s], PAUSE_S_MAX)
    assert watch.fewest_up >= 2, "one member at a time"
    assert not watch.double_masters
    assert all_have_in_force(group, LIVE), "replaced pods have them, too"
    assert_nothing_was_lost(group, load, since=settled_front(group))


def all_have_in_force(group: Group, wanted: dict[str, str]) -> bool:
    members: list[dict[str, Any]] = group.status()["members"]
    return all(wanted.items() <= each.get("settings", {}).items() for each in members)


def fronts(group: Group) -> dict[str, int]:
    """Return the first index of each member's log; nothing unless all members answer."""
    answers = {pod: group.node_status(pod) for pod in group.pods()}
    found = {pod: answer.ledger_begin_index for pod, answer in answers.items() if answer}
    return found if found.keys() == answers.keys() else {}


def settled_front(group: Group) -> int:
    """Wait until the leader has nothing left to remove; return the first index of its log."""

    def found() -> int | None:
        manifest = group.manifest(group.leader_pod())
        fits = sum(each.size_bytes for each in manifest.data) <= LOG_BYTES_MAX
        return manifest.status.ledger_begin_index if fits else None

    return wait_for(found, "the log is as small as retention asks for")


def revision_to_approve(group: Group) -> str | None:
    plan = group.status().get("plan", {})
    return str(plan["revision"]) if plan.get("reason") == "WaitingForApproval" else None


def approve(group: Group, revision: str) -> None:
    annotation = f"dledger.io/approved-revision={revision}"
    group.kubectl("annotate", "dlg", group.name, "--overwrite", annotation)


def requested(group: Group) -> set[str]:
    """Return the CPUs that the members' containers request."""
    return {
        each["resources"]["requests"]["cpu"]
        for pod in group.pods().values()
        for each in pod["spec"]["containers"]
        if each["name"] == "node"
    }
