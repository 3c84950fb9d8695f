"""Full volumes of a storage class that can grow: appends go on once there is room."""

import time
import uuid
from collections.abc import Callable

import pytest

from dledger_e2e.group import Group
from dledger_e2e.growing_volumes import GrowthWatch, capacities_bytes, mounted_volumes
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for
from dledger_formats.quantities import quantity_bytes
from tools.deployment import CommandError, Deployment
from tools.local_cluster.cluster import Cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]

MAJORITY = 2
FULL_S = 120.0
GROWN_S = 120.0
GOES_ON_S = 5.0
"""Maximum time between the room for a majority and the first acknowledged append."""
BY_ITSELF = {"usedPercent": 90, "step": "64Mi", "maxSize": "448Mi", "coolDown": "5m"}


@pytest.fixture
def growing(deployed: Deployment) -> tuple[Cluster, str]:
    """The local cluster, and a storage class with one disk on each node, all of which can grow."""
    local = deployed.local
    if local is None:
        pytest.skip("volumes whose growth can be watched exist only on the local cluster")
    storage_class = f"growing-{uuid.uuid4().hex[:8]}"
    for number in (1, 2, 3):
        local.add_disk(
            number,
            "320Mi",
            name=f"{storage_class}-{number}",
            storage_class=storage_class,
            grows=True,
        )
    return local, storage_class


def full_members(group: Group) -> list[str]:
    """Return the members that say that their volume is full, and therefore are not ready."""
    told = {pod: group.node_status(pod) for pod in group.pods()}
    return [
        pod
        for pod, status in told.items()
        if status is not None and not status.ready and "full" in status.reason
    ]


def refuses_an_append(group: Group) -> bool:
    """Try one append, and return whether it is refused because volumes are full."""
    command = group.client_command("append", "--body=one more", "--deadline=2")
    try:
        group.deployment.kubernetes.kubectl(*command)
    except CommandError as error:
        return "DISK_FULL" in str(error)
    return False


def fill(group: Group) -> list[str]:
    """Wait until a majority says that it is full and appends fail; return the full members.

    A leader with room refuses appends, too, and then stays ready.
    """
    wait_for(lambda: len(full_members(group)) >= MAJORITY, "a majority is full", FULL_S)
    wait_for(lambda: refuses_an_append(group), "an append is refused")
    group.wait_for_words("Degraded", "full")
    return full_members(group)


def grow(
    group: Group, local: Cluster, load: Load, full: list[str], reached: str, **storage: object
) -> str:
    """Grow the volumes, check that appends go on in time, and describe the times."""
    with GrowthWatch(mounted_volumes(group, local)) as watch:
        asked_s, acknowledged = time.time(), len(load.acknowledged)
        group.change(storage=storage)
        wait_for(lambda: len(watch.grown_at_s) == 3, "all file systems have grown", GROWN_S)
        # The volumes may be full again before the last one has grown.
        wait_for(lambda: len(load.acknowledged) >= acknowledged + 500, "appends go on")
    wait_for(
        lambda: capacities_bytes(group) == [quantity_bytes(reached)] * 3,
        "all claims have grown",
        GROWN_S,
    )
    grown_at_s = sorted(watch.grown_at_s[pod] for pod in full)
    room_s = grown_at_s[len(full) - MAJORITY]
    went_on_s = next(
        each.at_s for each in load.acknowledged[acknowledged:] if each.at_s > grown_at_s[0]
    )
    assert went_on_s - room_s <= GOES_ON_S, "appends go on soon after a majority has room"
    return (
        f"{len(full)} members full; room for a majority after {room_s - asked_s:.1f} s, on all "
        f"after {max(watch.grown_at_s.values()) - asked_s:.1f} s; the first append "
        f"{went_on_s - room_s:.2f} s after the room for a majority"
    )


def test_appends_go_on_when_full_volumes_grow_by_the_spec_and_by_themselves(
    growing: tuple[Cluster, str],
    make_group: Callable[..., Group],
    capsys: pytest.CaptureFixture[str],
) -> None:
    local, storage_class = growing
    group = make_group(storage={"size": "320Mi", "storageClassName": storage_class})
    group.start_client()
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")

    # `dledger append` ends once all that it has in flight was refused because volumes are full.
    with Load(group, per_second=4_000, body_bytes=8_000, deadline_s=FULL_S + GROWN_S) as load:
        full = fill(group)
        by_spec = grow(group, local, load, full, "384Mi", size="384Mi")
        full = fill(group)
        by_itself = grow(group, local, load, full, "448Mi", autoGrow=BY_ITSELF)

    with capsys.disabled():
        print(
            f"\ngrown by the spec: {by_spec}\ngrown by itself: {by_itself}\n"
            f"{len(load.acknowledged)} entries of 8,000 bytes, failures: {dict(load.failures)}"
        )
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    assert group.restarts() == 0
    assert_nothing_was_lost(group, load)
