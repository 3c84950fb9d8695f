"""What the cluster decides without touching the machine."""

import pytest

from tools.local_cluster import disks, readiness
from tools.local_cluster.__main__ import parser, status_lines
from tools.local_cluster.cluster import Cluster, choose_slot
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import SLOTS


def node_object(status: str, heartbeat: str) -> dict[str, object]:
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    return {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}, condition]}}


def test_a_node_is_ready_by_a_heartbeat_of_its_present_life() -> None:
    ready = node_object("True", "1970-01-01T00:01:40Z")
    assert readiness.is_ready(ready, since=100.9)
    assert not readiness.is_ready(ready, since=102)
    assert not readiness.is_ready(node_object("Unknown", "1970-01-01T00:01:40Z"), since=0)
    assert not readiness.is_ready(None, since=0)


def test_the_lowest_free_slot_is_chosen_unless_one_is_wanted() -> None:
    assert choose_slot(None, [0, 2]) == 1
    assert choose_slot(7, [0, 2]) == 7
    with pytest.raises(LocalClusterError, match="slot 2"):
        choose_slot(2, [0, 2])
    with pytest.raises(LocalClusterError, match="all"):
        choose_slot(None, range(SLOTS))


def test_a_cluster_that_was_never_up_says_so(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_CLUSTERS", str(tmp_path))
    cluster = Cluster("absent")
    assert cluster.status() == {"name": "absent", "exists": False, "healthy": False}
    assert status_lines(cluster.status()) == ["absent: no such cluster"]
    with pytest.raises(LocalClusterError, match="bring it up first"):
        _ = cluster.kubeconfig
    cluster.down(purge=True)


def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_done() -> None:
    with pytest.raises(ValueError, match="cluster name"):
        Cluster("..")


def test_every_command_has_an_action_and_a_help_text() -> None:
    for line in (
        "up --nodes 2 --slot 3",
        "down --purge",
        "status --output json",
        "load a b --node 1",
        "stop-node 1",
        "images node",
        "add-disk 2 --size 32Mi",
    ):
        assert callable(parser().parse_args(line.split()).action)


@pytest.mark.parametrize(("text", "size"), [("8Mi", 8 << 20), ("1Gi", 1 << 30)])
def test_a_disk_size_is_a_quantity(text: str, size: int) -> None:
    assert disks.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64", "64M", "-1Mi", "1Mi", "Mi"])
def test_a_size_that_makes_no_disk_is_refused(text: str) -> None:
    with pytest.raises(LocalClusterError, match="want"):
        disks.parse_size(text)
