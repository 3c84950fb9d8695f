"""Decisions of the cluster that need no access to the machine."""

import pytest

from tools.local_cluster import __main__, disks, readiness
from tools.local_cluster.cluster import Cluster
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import SLOTS
from tools.local_cluster.registry import choose_slot


def node_object(status: str, heartbeat: str) -> dict[str, object]:
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    return {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}, condition]}}


def test_a_node_is_ready_only_after_a_heartbeat_since_its_start() -> None:
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


def test_a_cluster_that_was_never_up_reports_that_it_does_not_exist(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_CLUSTERS", str(tmp_path))
    cluster = Cluster("absent")
    assert cluster.status() == {"name": "absent", "exists": False, "healthy": False}
    assert __main__.status_lines(cluster.status()) == ["absent: no such cluster"]
    with pytest.raises(LocalClusterError, match="bring it up first"):
        _ = cluster.kubeconfig
    cluster.down(purge=True)


def test_a_name_that_is_a_relative_path_is_rejected() -> None:
    with pytest.raises(ValueError, match="cluster name"):
        Cluster("..")


@pytest.mark.parametrize(
    ("line", "action", "options"),
    [
        ("up --nodes 2 --slot 3", __main__.up, {"nodes": 2, "slot": 3}),
        ("down --purge", __main__.down, {"purge": True}),
        ("status --output json", __main__.status, {"output": "json"}),
        ("load a b --node 1", __main__.load, {"images": ["a", "b"], "node": [1]}),
        ("stop-node 1", __main__.stop_node, {"number": 1}),
        ("start-node 2", __main__.start_node, {"number": 2}),
        ("cut-link 3", __main__.cut_link, {"number": 3}),
        ("restore-link 3", __main__.restore_link, {"number": 3}),
        ("images node", __main__.build_images, {"targets": ["node"]}),
        ("add-disk 2 --size 32Mi", __main__.add_disk, {"number": 2, "size": "32Mi"}),
        ("add-disk 2 --grows", __main__.add_disk, {"number": 2, "grows": True}),
        ("kubeconfig", __main__.kubeconfig, {}),
        ("build", __main__.build, {}),
        ("doctor --name other", __main__.doctor, {"name": "other"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_command_has_its_action_and_options(
    line: str, action: __main__.Action, options: dict[str, object]
) -> None:
    arguments = vars(__main__.parser().parse_args(line.split()))

    assert arguments["action"] is action
    assert arguments | options == arguments


@pytest.mark.parametrize(("text", "size"), [("8Mi", 8 << 20), ("1Gi", 1 << 30)])
def test_a_disk_size_is_a_quantity(text: str, size: int) -> None:
    assert disks.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64", "64M", "-1Mi", "1Mi", "Mi"])
def test_an_invalid_disk_size_is_rejected(text: str) -> None:
    with pytest.raises(LocalClusterError, match="must be"):
        disks.parse_size(text)
