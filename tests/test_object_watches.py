"""Watches see what lasts only a moment; one that ends early, or never begins, fails its test."""

import json
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_e2e.condition_watch import ConditionWatch
from dledger_e2e.group import ROLE_LABEL, Group
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for


def group(kubectl: str) -> Group:
    """Return a group of three whose watch is this command of the shell."""

    def start(*arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sh", "-c", kubectl], **streams)

    return cast(
        "Group",
        SimpleNamespace(
            get=lambda *names: {"spec": {"replicas": 3}},
            name="log",
            namespace="here",
            deployment=SimpleNamespace(kubernetes=SimpleNamespace(start=start)),
        ),
    )


def events(*roles: str) -> str:
    """Return a command that prints the event of a new pod for each role."""
    printed = [
        {
            "type": "ADDED",
            "object": {"metadata": {"name": f"log-{k}", "labels": {ROLE_LABEL: role}}},
        }
        for k, role in enumerate(roles)
    ]
    return printing(printed)


def printing(printed: list[dict[str, Any]]) -> str:
    return f"echo '{' '.join(map(json.dumps, printed))}'"


def statuses(*reasons: str) -> str:
    """Return a command that prints the event of a group's status for each reason of Ready."""
    return printing(
        [
            {
                "type": "MODIFIED",
                "object": {
                    "status": {
                        "conditions": [
                            {"type": "LeaderElected", "reason": "LeaderProven"},
                            {"type": "Ready", "reason": reason, "message": "said"},
                        ]
                    }
                },
            }
            for reason in reasons
        ]
    )


def test_a_watch_that_goes_on_to_the_end_counts_masters() -> None:
    seen = events("master", "slave", "master")

    with PodWatch(group(f"{seen}; exec sleep 600")) as watch:
        assert watch.events == 3, "every member was seen before the block begins"

    assert watch.double_masters == [["log-0", "log-2"]]


def test_a_condition_that_lasts_only_a_moment_is_seen() -> None:
    seen = statuses("Ready", "Hibernating", "Hibernating", "Hibernated", "Ready")

    with ConditionWatch(group(f"{seen}; exec sleep 600"), "Ready") as watch:
        wait_for(lambda: len(watch.said) == 4, "every change was seen")

    assert watch.reasons == ["Ready", "Hibernating", "Hibernated", "Ready"]


def test_a_watch_that_never_began_fails() -> None:
    refused = group("echo 'error: You must be logged in' >&2; exit 1")

    with pytest.raises(AssertionError, match="ended with 1: error: You must be"), PodWatch(refused):
        pytest.fail("the block must not begin")


def test_a_watch_that_ended_within_the_block_fails() -> None:
    whole = PodWatch(group(f"{events('master', 'slave', 'slave')}; exec sleep 600"))

    with pytest.raises(AssertionError, match="the watch ended with -9"), whole as watch:
        kill(watch)


def test_the_failure_of_a_block_is_not_hidden_by_an_ended_watch() -> None:
    whole = PodWatch(group(f"{events('master', 'slave', 'slave')}; exec sleep 600"))

    def fail() -> None:
        with whole as watch:
            kill(watch)
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        fail()


def kill(watch: PodWatch) -> None:
    """End the watch's kubectl."""
    assert watch._process is not None
    watch._process.kill()
    watch._process.wait(timeout=60)
