"""Scaling a group under load with `kubectl scale`."""

import itertools
import re
import time
from collections.abc import Callable

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.condition_watch import ConditionWatch
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for
from tools.deployment import CommandError

pytestmark = pytest.mark.cluster

SCALED_S = 400.0
"""A scheduler that misses the binding of a volume looks at its pod again after five minutes."""
SIZES = (1, 3, 5, 7, 1)
PAUSE_S_MAX = 10.0
"""Far above what is seen, because the machine may be busy with other tests."""


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_a_group_grows_to_five_and_shrinks_to_three_without_a_loss(group: Group) -> None:
    with Load(group, per_second=500) as load:
        scale(group, 5)
        wait_until_scaled(group, 5)
        load.wait_for_more(500)
        lead_with(group, "n4")

        scale(group, 3)
        wait_until_scaled(group, 3)
        load.wait_for_more(500)

    assert len(group.get("pvc")["items"]) == 5, "retain.whenScaled defaults to Retain"
    assert_nothing_was_lost(group, load)
    sound = audit(group, "after-scaling")
    assert (sound["phase"], sound["verdict"]) == ("Finished", "Sound")
    group.wait_for_condition("Ready", "True")

    scale(group, 5)
    wait_until_scaled(group, 5)
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_a_group_grows_through_every_size_and_shrinks_to_one_under_load(
    make_group: Callable[..., Group], capsys: pytest.CaptureFixture[str]
) -> None:
    group = make_group(replicas=1)
    group.start_client()
    group.wait_until_ready()
    figures: list[str] = []
    gaps_s: list[float] = []
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        for before, after in itertools.pairwise(SIZES):
            load.wait_for_more(200)
            began_s, since = time.monotonic(), len(load.acknowledged)
            seen = voters_while_scaled(group, after)
            took_s = time.monotonic() - began_s
            load.wait_for_more(200)
            gaps_s.append(load.longest_pause_s(since))
            gap = f"gap {gaps_s[-1]:.3f} s"
            figures.append(f"{before} to {after}: {took_s:.1f} s, {gap}, saw {seen}")
            step = 1 if after > before else -1
            assert seen == list(range(before, after + step, step)), "one member after the other"

    with capsys.disabled():
        print(f"\n{len(load.acknowledged)} appends; {'; '.join(figures)}")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert_pauses_are_short(gaps_s, PAUSE_S_MAX)
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)


def voters_while_scaled(group: Group, replicas: int) -> list[int]:
    """Scale a group; return each number of voters that Progressing told, in order."""
    with ConditionWatch(group, "Progressing") as watch:
        scale(group, replicas)
        wait_until_scaled(group, replicas)
        final = f"the group has {replicas} voters, as spec.replicas asks for"
        wait_for(lambda: watch.said[-1]["message"] == final, f"Progressing says: {final}")
    told = (re.match(r"the group has (\d+) voters", each["message"]) for each in watch.said)
    return [count for count, _ in itertools.groupby(int(each[1]) for each in told if each)]


def scale(group: Group, replicas: int) -> None:
    group.kubectl("scale", f"dlg/{group.name}", f"--replicas={replicas}")


def wait_until_scaled(group: Group, replicas: int) -> None:
    """Wait until the group's status and its leader report this number of voters."""
    expected = [f"n{ordinal}" for ordinal in range(replicas)]

    def reported() -> bool:
        status = group.status()
        progressing = group.condition("Progressing")
        return (
            progressing.get("status") == "False"
            and status["membersReady"] == f"{replicas}/{replicas}"
            and len(group.pods()) == replicas
        )

    wait_for(reported, f"{group.name} has {replicas} members", SCALED_S)
    leader = group.node_status(group.leader_pod())
    assert leader is not None
    assert (leader.voters, leader.learners) == (expected, [])


def lead_with(group: Group, member: str) -> None:
    """Transfer the leadership with the token of a member's container, which other pods lack, and
    wait until the labels have followed.
    """
    with pytest.raises(CommandError, match="demands its administration token"):
        group.kubectl(*group.client_command("transfer", member))
    container = ["exec", f"{group.name}-0", "--container=node", "--"]
    servers = f"--servers={group.name}-nodes:40911"
    group.kubectl(*container, "dledger", "transfer", member, servers, f"--group={group.name}")
    pod = f"{group.name}-{member.removeprefix('n')}"
    wait_for(lambda: group.leader_pod() == pod, f"{member} leads")
