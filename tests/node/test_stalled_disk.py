"""A disk that stalls for a minute costs a member its role for that minute, and nothing else.

The member's file system lies on a loop device, whose file lies on another file system. That one is
frozen, so reads and writes of the device wait, as those of a network disk that is gone. Writes to
the page cache wait, too, once the journal of the member's file system does; so the event loop may.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import (
    ClientError,
    GroupUnreachableError,
    NotLeaderError,
    OutcomeUnknownError,
    RefusedError,
)
from dledger_formats.http.status import NodeStatus, StorageState
from dledger_group.mounts import run
from dledger_store_files.root import AS_ROOT
from tools.groups.node_group import NodeGroup

FIFREEZE: Final = 0xC0045877
FITHAW: Final = 0xC0045878
LIVENESS_LIMIT_S: Final = 5.0
"""The time limit of the liveness probe (`resources.stateful_set`)."""
pytestmark = pytest.mark.storage


def make_disk(file: Path, mib: int, at: Path) -> None:
    with file.open("wb") as disk:
        disk.truncate(mib << 20)
    run("mkfs.ext4", "-qF", str(file))
    at.mkdir()
    run("mount", "-o", "loop", str(file), str(at))


@dataclass
class Device:
    """The device below a member's file system."""

    below: Path

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Stall for the body of a `with`; a member cannot end before its disk goes on."""
        self._control(FIFREEZE)
        try:
            yield
        finally:
            self._control(FITHAW)

    def _control(self, request: int) -> None:
        fd = os.open(self.below, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, request, 0)
        finally:
            os.close(fd)


@contextlib.contextmanager
def device_of(folder: Path, member: str) -> Iterator[Device]:
    """Put a member's folder, which is not removed, on a device of its own."""
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        pytest.skip("needs mkfs.ext4 and loop devices")
    below, above = folder / f"below-{member}", folder / f"dledger-{member}"
    with contextlib.ExitStack() as undo:
        make_disk(folder / f"outer-{member}", 160, below)
        undo.callback(subprocess.run, ["umount", "-l", str(below)], check=True)
        make_disk(below / "inner", 96, above)
        undo.callback(subprocess.run, ["umount", "-l", str(above)], check=True)
        (above / "lost+found").rmdir()
        yield Device(below)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """The device of n0."""
    with device_of(tmp_path, "n0") as found:
        yield found


@pytest.fixture
def two_devices(tmp_path: Path) -> Iterator[tuple[Device, Device]]:
    """The devices of n0 and n1."""
    with device_of(tmp_path, "n0") as first, device_of(tmp_path, "n1") as second:
        yield first, second


@dataclass
class Probes:
    """Asks a page of a member twice a second, as a kubelet would."""

    url: str
    slowest_s: float = 0.0
    codes: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._stopping.wait(0.5):
            began_s = time.monotonic()
            try:
                with urllib.request.urlopen(self.url, timeout=LIVENESS_LIMIT_S) as answer:
                    self.codes.add(answer.status)
            except urllib.error.HTTPError as error:
                self.codes.add(error.code)
            except OSError as error:
                self.failures.append(str(error))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()


def let_lead(group: NodeGroup, member: str) -> None:
    while (master := group.master()) != member:
        group.kill(master)
        group.master()
        group.start(master)
        group.wait_for_status(master, lambda view: view.ready, "is ready")


@AS_ROOT
@pytest.mark.parametrize("leads", [True, False], ids=["the-leader", "a-follower"])
async def test_a_member_whose_disk_stalls_answers_its_probes_and_goes_on_afterwards(
    tmp_path: Path, device: Device, leads: bool, pytestconfig: pytest.Config
) -> None:
    stall_s = pytestconfig.getoption("--stall-seconds")
    with NodeGroup(tmp_path) as group:
        let_lead(group, "n0" if leads else "n1")
        others = ["n1", "n2"]
        probes = Probes(f"http://{group.host('n0')}:{group.http_ports['n0']}/healthz")
        acknowledged = 0
        timing = Timing(deadline_s=60.0, request_timeout_s=2.0)
        async with DLedgerClient(group.servers, "g", idempotent=True, timing=timing) as client:
            with probes.running():
                stalled_until_s = time.monotonic() + stall_s
                with device.stalled():
                    while time.monotonic() < stalled_until_s:
                        async for outcome in client.append_all([bytes(1000)] * 100):
                            assert isinstance(outcome, Acknowledged)
                            acknowledged += 1
                        await asyncio.sleep(0.05)
                    leader = group.status("n1").leader_id
                    readiness = group.get("n0", "/readyz")[0]
                group.wait_for_status(
                    "n0",
                    lambda view: view.ready and view.committed_index >= acknowledged,
                    "is ready again and has all",
                )
        assert leader in others, "another member leads"
        assert readiness == HTTPStatus.SERVICE_UNAVAILABLE
        assert acknowledged

        assert probes.failures == []
        assert probes.codes == {200}
        assert probes.slowest_s < LIVENESS_LIMIT_S


def probes_of(group: NodeGroup, member: str) -> Probes:
    return Probes(f"http://{group.host(member)}:{group.http_ports[member]}/healthz")


def says_that_its_disk_stalls(group: NodeGroup, member: str) -> bool:
    """Return whether a status names the stall: the member's own, or the deputy's of its loop."""
    code, text = group.get(member, "/status")
    if code == HTTPStatus.OK:
        return NodeStatus.from_json(text).storage is StorageState.STALLED
    return code == HTTPStatus.SERVICE_UNAVAILABLE and b"has waited for the disk" in text


@AS_ROOT
@pytest.mark.parametrize("leads", ["n0", "n2"], ids=["a-stalled-leader", "a-sound-leader"])
async def test_two_members_whose_disks_stall_lose_nothing_and_no_append_stays_without_an_outcome(
    tmp_path: Path,
    two_devices: tuple[Device, Device],
    leads: str,
    pytestconfig: pytest.Config,
) -> None:
    """No majority can write, so nothing may be acknowledged; each append is answered in time."""
    stall_s = pytestconfig.getoption("--stall-seconds")
    timing = Timing(deadline_s=6.0, request_timeout_s=3.0)
    with NodeGroup(tmp_path) as group:
        let_lead(group, leads)
        ids = {member: group.process_id(member) for member in group.peers}
        probes = [probes_of(group, member) for member in group.peers]
        async with DLedgerClient(group.servers, "g", timing=timing) as client:
            kept = [await client.append(b"before %d" % number) for number in range(50)]
            outcomes: list[tuple[type[ClientError], float]] = []
            with contextlib.ExitStack() as running:
                for one in probes:
                    running.enter_context(one.running())
                stalled_until_s = time.monotonic() + stall_s
                with two_devices[0].stalled(), two_devices[1].stalled():
                    while time.monotonic() < stalled_until_s:
                        began_s = time.monotonic()
                        with pytest.raises(ClientError) as ended:
                            await client.append(b"while two disks stall")
                        outcomes.append((ended.type, time.monotonic() - began_s))
                    told = [says_that_its_disk_stalls(group, member) for member in ("n0", "n1")]
                    readiness = [group.get(member, "/readyz")[0] for member in group.peers]
                for member in group.peers:
                    group.wait_for_status(member, lambda view: view.ready, "is ready again")
            after = await client.append(b"after")
            held = [(await client.get(appended.index)).body for appended in (*kept, after)]

        assert held == [*(b"before %d" % number for number in range(50)), b"after"]
        assert told == [True, True]
        assert readiness == [HTTPStatus.SERVICE_UNAVAILABLE] * 3, "none can serve without the other"
        assert {kind for kind, _ in outcomes} <= {
            OutcomeUnknownError, RefusedError, NotLeaderError, GroupUnreachableError,
        }  # fmt: skip
        assert max(took_s for _, took_s in outcomes) < 2 * timing.deadline_s
        assert {member: group.process_id(member) for member in group.peers} == ids
        for one in probes:
            assert one.failures == []
            assert one.codes == {HTTPStatus.OK}
            assert one.slowest_s < LIVENESS_LIMIT_S
