"""A new group that begins with an archive on a volume claim, on the local cluster."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger_compaction.runs import compacted, copies_of
from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for
from dledger_formats.log import disk
from dledger_formats.protocol import register
from dledger_logs.write import Entry, Shape, write_log
from tools.deployment import CLIENT_POD, Deployment

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]

VALUES = [(number * 7 % 20, number) for number in range(45_000)]
SHAPE = Shape(segment_bytes=1 << 20, index_segment_bytes=(1 << 20) * 5 // 32)
READY_S = 180.0


@pytest.fixture
def folder(deployed: Deployment, tmp_path: Path) -> Iterator[Path]:
    """A folder that every node can mount, and pods can read."""
    if deployed.local is None:
        pytest.skip("only on the local cluster all nodes have a volume in common")
    shared = tmp_path / "archives"
    shared.mkdir()
    for each in (shared, *shared.parents[:3]):
        each.chmod(0o755)
    yield shared
    shutil.rmtree(shared)


def archive_of_registers(tmp_path: Path) -> Path:
    entries = [Entry(term=3, body=b"", magic=disk.NOOP)]
    entries += [Entry(term=7, body=register.SET.pack(key, value)) for key, value in VALUES]
    log = write_log(tmp_path / "source", entries, SHAPE)
    made = compacted(copies_of({"n0": log}), tmp_path / "archive", "register")
    assert made is not None
    assert made.info.dead_entries > 10_000
    return made.path


def offer(group: Group, folder: Path) -> None:
    """Make a volume of a folder, and a claim of it that all pods may mount at once."""
    name = f"archives-{group.namespace}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": name,
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "archives"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": name,
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    kubernetes = group.deployment.kubernetes
    kubernetes.apply(volume)
    kubernetes.apply(claim, f"--namespace={group.namespace}")


def values_read_back(group: Group) -> dict[int, int]:
    found = {}
    for key, _ in VALUES[:20]:
        told = group.kubectl(
            "exec", CLIENT_POD, "--", "dledger", "register", "get", str(key), "--output=json",
            f"--servers={group.name}-master:40911", f"--group={group.name}",
        )  # fmt: skip
        found[key] = json.loads(told)["value"]
    return found


def test_a_group_begins_with_its_archive_or_not_at_all(
    make_group: Callable[..., Group], folder: Path, tmp_path: Path
) -> None:
    seed = {"persistentVolumeClaim": {"claimName": "archives", "path": "orders"}, "group": "g"}
    group = make_group(
        log={"segmentSize": "1Mi"}, stateMachine={"type": "Register"}, seed=seed
    )  # fmt: skip
    group.start_client()
    group.wait_for_words("Ready", '"archives" not found')
    offer(group, folder)
    group.wait_for_words("Ready", "/seed/orders is no archive")
    assert not any(status.get("term") for status in group.status()["members"])

    archive = archive_of_registers(tmp_path)
    shutil.copytree(archive, folder / "partial")
    (folder / "partial").rename(folder / "orders")
    # A pod that is made again does not wait for the kubelet's next try.
    group.delete_pod(*group.pods())
    group.wait_until_ready(READY_S)
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    assert values_read_back(group) == dict(VALUES)
    first = group.get("dlg", group.name)["status"]["leader"]["term"]
    assert first > 7

    shutil.rmtree(folder / "orders")
    wait_for(lambda: not _begins(group), "new pods no longer begin with the archive")
    follower = next(pod for pod in sorted(group.pods()) if pod != group.leader_pod())
    claim = group.claim_uid_of(follower)
    group.kubectl("delete", "pvc", f"data-{follower}", "--wait=false")
    group.delete_pod(follower)
    wait_for(lambda: group.claim_uid_of(follower) not in (None, claim), "a new volume", READY_S)
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", READY_S)
    assert "initContainers" not in group.pods()[follower]["spec"]
    group.delete_pod(group.leader_pod())
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", READY_S)
    assert values_read_back(group) == dict(VALUES)


def _begins(group: Group) -> bool:
    template = group.get("statefulset", group.name)["spec"]["template"]["spec"]
    return "initContainers" in template
