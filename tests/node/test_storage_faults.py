"""A member whose volume fails stays up, reports why, and returns to service by itself."""

import contextlib
import fcntl
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError
from dledger_formats.http.status import StorageState
from dledger_group.mounts import run, volume_of_8_mib
from dledger_store_files.damage import flip
from dledger_store_files.root import AS_ROOT
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

SEGMENT_BYTES = 1 << 20
EXT4_IOC_SHUTDOWN, EVERYTHING_FLUSHED = 0x8004587D, 0
pytestmark = pytest.mark.storage


async def append_all(group: NodeGroup, bodies: list[bytes]) -> None:
    # If a disk is busy for 2 s the outcome is unknown, and the client retries.
    async with DLedgerClient(servers=group.servers, group="g", at_least_once=True) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged)


def follower_of(group: NodeGroup) -> str:
    master = group.master()
    return next(member for member in group.running() if member != master)


@pytest.fixture
def group_that_heals_nothing(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members that do not repair damaged files."""
    with NodeGroup(tmp_path, on_damage="stay-out") as running:
        yield running


async def test_a_member_whose_log_is_damaged_stays_out_and_says_why(
    group_that_heals_nothing: NodeGroup,
) -> None:
    group = group_that_heals_nothing
    hurt = follower_of(group)
    await append_all(group, [bytes(1000)] * 100)
    group.wait_for_status(hurt, lambda view: view.durable_index >= 100, "has stored all")
    group.stop(hurt)
    data = group.store_folder(hurt) / "data"
    flip(data, 50_000, segment_bytes=SEGMENT_BYTES)
    before = (data / f"{0:020}").read_bytes()

    group.start(hurt)
    group.wait_for_status(
        hurt, lambda view: "the setting on_damage says to stay out" in view.reason, "says so"
    )

    status = group.status(hurt)
    assert status.storage is StorageState.DAMAGED
    assert not status.ready
    assert f"{data}/{0:020}, byte " in status.reason
    assert "bad_body_crc" in status.reason
    code, text = group.get(hurt, "/readyz")
    assert (code, text.decode().strip()) == (503, status.reason)
    assert group.get(hurt, "/healthz")[0] == 200
    assert b'dledger_node_storage{state="Damaged"} 1.0' in group.get(hurt, "/metrics")[1]
    assert (data / f"{0:020}").read_bytes() == before
    await append_all(group, [b"the group goes on"])


async def test_a_member_returns_to_service_once_its_files_are_restored(
    group_that_heals_nothing: NodeGroup,
) -> None:
    group = group_that_heals_nothing
    hurt = follower_of(group)
    await append_all(group, [bytes(1000)] * 100)
    group.wait_for_status(hurt, lambda view: view.durable_index >= 100, "has stored all")
    group.stop(hurt)
    data = group.store_folder(hurt) / "data"
    moved = group.folder / "moved"
    (data / f"{0:020}").rename(moved)
    group.start(hurt)
    group.wait_for_status(hurt, lambda view: view.storage is StorageState.DAMAGED, "reports it")

    moved.rename(data / f"{0:020}")

    group.wait_for_status(hurt, lambda view: view.ready, "serves again")
    assert group.status(hurt).storage is StorageState.SOUND


async def test_a_member_that_must_not_mend_stops_serving_when_it_finds_damage(
    group_that_heals_nothing: NodeGroup,
) -> None:
    """A client reads a damaged entry from the leader: it gets no wrong byte, and another leads."""
    group = group_that_heals_nothing
    leader = group.master()
    await append_all(group, [bytes([7]) * 1000] * 100)
    flip(group.store_folder(leader) / "data", 50_000, segment_bytes=SEGMENT_BYTES)

    with contextlib.suppress(ClientError):  # a read may be refused, or go to another leader
        async with DLedgerClient(servers=group.servers, group="g") as client:
            for index in range(1, 100):
                assert (await client.get(index)).body == bytes([7]) * 1000

    group.wait_for_status(leader, lambda view: view.storage is StorageState.DAMAGED, "reports it")
    assert group.master() != leader


@pytest.fixture
def group_with_a_small_volume(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members; n0 has a volume of 8 MiB, and does not lead."""
    with volume_of_8_mib(tmp_path / "dledger-n0"), NodeGroup(tmp_path) as group:
        let_another_lead(group)
        yield group


def let_another_lead(group: NodeGroup) -> None:
    while group.master() == "n0":
        group.kill("n0")
        group.master()
        group.start("n0")
        group.wait_until_up("n0")


def let_lead(group: NodeGroup, member: str) -> None:
    while (master := group.master()) != member:
        group.kill(master)
        group.master()
        group.start(master)
        group.wait_for_status(master, lambda view: view.ready, "is ready")


def fill_up(volume: Path) -> None:
    """Fill a volume to its last block."""
    with contextlib.suppress(OSError), (volume / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@AS_ROOT
async def test_a_member_on_a_full_volume_reports_it_votes_and_recovers(
    group_with_a_small_volume: NodeGroup,
) -> None:
    group = group_with_a_small_volume
    fill_up(group.store_folder("n0"))
    await append_all(group, [bytes(10_000)] * 600)
    group.wait_for_status(
        "n0", lambda view: view.storage is StorageState.FULL and not view.ready, "reports it"
    )
    term = group.status("n0").term

    group.kill(group.master())

    # The candidate wins with this vote, but commits nothing while only one of the two has room.
    wait_for(lambda: group.status("n0").term > term, "n0 has saved a later term")
    (group.store_folder("n0") / "filler").unlink()
    group.wait_for_status("n0", lambda view: view.ready, "serves again")
    assert group.status("n0").storage is StorageState.SOUND


@AS_ROOT
async def test_a_leader_on_a_full_volume_transfers_its_leadership(
    group_with_a_small_volume: NodeGroup,
) -> None:
    """In DLedger it stays the leader and refuses appends that its peers have room for."""
    group = group_with_a_small_volume
    let_lead(group, "n0")
    fill_up(group.store_folder("n0"))

    await append_all(group, [bytes(10_000)] * 600)

    assert group.master() != "n0"
    group.wait_for_status("n0", lambda view: view.storage is StorageState.FULL, "reports it")


@pytest.fixture
def group_with_a_disk(tmp_path: Path) -> Iterator[NodeGroup]:
    """Three members; n0 has its own ext4 file system, and does not lead."""
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 and loop devices")
    at = tmp_path / "dledger-n0"
    at.mkdir()
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(32 << 20)
    run("mkfs.ext4", "-qF", "-O", "^has_journal", str(tmp_path / "disk"))
    plug_in(tmp_path)
    try:
        with NodeGroup(tmp_path) as group:
            let_another_lead(group)
            yield group
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def plug_in(folder: Path) -> None:
    run("mount", "-o", "loop", str(folder / "disk"), str(folder / "dledger-n0"))
    (folder / "dledger-n0" / "lost+found").rmdir()


@AS_ROOT
async def test_a_member_whose_disk_fails_reports_it_and_returns_with_its_data(
    group_with_a_disk: NodeGroup,
) -> None:
    group = group_with_a_disk
    await append_all(group, [bytes(1000)] * 100)
    at = group.store_folder("n0")
    fd = os.open(at, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", EVERYTHING_FLUSHED))
    os.close(fd)

    await append_all(group, [bytes(1000)] * 100)

    group.wait_for_status("n0", lambda view: view.storage is StorageState.FAILED, "reports it")
    assert "Input/output error" in group.status("n0").reason
    run("umount", "-l", str(at))
    # Copied, since another mount namespace may still use the file system that was shut down.
    shutil.copyfile(group.folder / "disk", group.folder / "copied")
    (group.folder / "copied").rename(group.folder / "disk")
    run("mount", "-o", "loop", str(group.folder / "disk"), str(at))
    group.wait_for_status(
        "n0", lambda view: view.ready and view.committed_index >= 200, "serves again"
    )


@AS_ROOT
async def test_a_member_whose_file_system_refuses_writes_serves_its_files_to_auditors(
    group_with_a_disk: NodeGroup,
) -> None:
    group = group_with_a_disk
    await append_all(group, [bytes(1000)] * 100)
    group.wait_for_status("n0", lambda view: view.committed_index >= 100, "knows the commit")
    group.stop("n0")
    at = group.store_folder("n0")
    run("umount", str(at))
    run("mount", "-o", "loop,ro", str(group.folder / "disk"), str(at))
    group.start("n0")
    group.wait_for_status("n0", lambda view: view.storage is StorageState.FAILED, "reports it")

    listed = group.manifest("n0")
    name = listed.data[0].name
    code, body = group.get("n0", f"/segments/data/{name}", {"Range": "bytes=0-99"})

    assert listed.status.committed_index >= 100
    assert (code, body) == (206, (at / "data" / name).read_bytes()[:100])
    assert group.get("n0", "/files/checkpoint") == (200, (at / "checkpoint").read_bytes())
    assert group.status("n0").committed_index == -1, "its status has nothing committed"


WAITED_S = re.compile(rb"the event loop has waited for the disk for (\d+) s")
PAST_THE_STALL_S = 7
"""Longer than DLEDGER_FLUSH_STALL_MS, and than the time-out of a probe."""


@contextlib.contextmanager
def frozen(volume: Path) -> Iterator[None]:
    """Let no write to a file system end while the block runs."""
    run("fsfreeze", "--freeze", str(volume))
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(volume)], check=True)


@AS_ROOT
async def test_a_leader_whose_file_system_freezes_is_replaced_and_still_answers_its_probes(
    group_with_a_disk: NodeGroup,
) -> None:
    """The kubelet would kill it otherwise, which helps nobody: the disk would be as slow then."""
    group = group_with_a_disk
    let_lead(group, "n0")
    probes = []

    def has_waited_long() -> bool:
        probes.append(group.get("n0", "/healthz")[0])
        waited = WAITED_S.search(group.get("n0", "/status")[1])
        return waited is not None and int(waited[1]) >= PAST_THE_STALL_S

    with frozen(group.store_folder("n0")):
        await append_all(group, [bytes(1000)] * 100)
        wait_for(has_waited_long, "n0 has waited for its disk for a while")

    assert set(probes) == {200}
    assert group.master() != "n0"
    group.wait_for_status(
        "n0", lambda view: view.ready and view.committed_index >= 100, "serves again"
    )
    assert group.status("n0").storage is StorageState.SOUND
