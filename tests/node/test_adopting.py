"""The way back after the loss of a majority: one survivor becomes a group of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_formats.peers import format_peers
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.settings import NodeSettings
from dledger_node.store_command.adopt import TERM_STEP
from dledger_store_files.damage import flip
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
EARLIER = "earlier-group"
BODIES = [b"%d" % number for number in range(50)]


class Survivors(NodeGroup):
    """A group whose members may get another identity when they start again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.identity = EARLIER

    def settings(self, member: str) -> NodeSettings:
        return replace(super().settings(member), group_identity=self.identity)

    def adopt(self, member: str, *options: str) -> subprocess.CompletedProcess[str]:
        pages = {one: f"127.0.0.1:{port}" for one, port in self.http_ports.items()}
        return subprocess.run(
            [
                sys.executable, "-m", "dledger_node", "store", "adopt", *options,
                "--peers", format_peers(self.peers), "--http-peers", format_peers(pages),
                str(self.store_folder(member)),
            ],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Survivors]:
    with Survivors(tmp_path) as running:
        yield running


async def append(group: NodeGroup) -> dict[int, bytes]:
    async with DLedgerClient(group.servers, "g") as client:
        return {(await client.append(body)).index: body for body in BODIES}


async def read(group: NodeGroup, indexes: dict[int, bytes]) -> dict[int, bytes]:
    async with DLedgerClient(group.servers, "g") as client:
        return {index: (await client.get(index)).body for index in indexes}


def kill_all(group: NodeGroup) -> None:
    for member in group.running():
        group.kill(member)


def files_of(group: NodeGroup, member: str) -> dict[Path, bytes]:
    folder = group.store_folder(member)
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_survivor_leads_alone_and_grows_again_while_the_lost_stay_strangers(
    group: Survivors,
) -> None:
    stored = await append(group)
    wait_for(lambda: group.status("n0").durable_index >= max(stored), "n0 has all entries")
    term = group.status("n0").term
    kill_all(group)

    done = group.adopt("n0", "-o", "json", "--yes")

    assert done.returncode == 0, done.stderr
    group.identity = json.loads(done.stdout)["identity"]
    group.start("n0")
    assert group.master() == "n0"
    view = group.status("n0")
    assert (view.voters, view.group_identity) == (["n0"], group.identity)
    assert view.term > term + TERM_STEP
    assert await read(group, stored) == stored

    group.start("n1")  # with the folder of the earlier group
    group.wait_for_status("n1", lambda one: EARLIER in one.reason, "stays out")
    group.kill("n1")
    shutil.rmtree(group.store_folder("n1"))
    group.start("n1")
    async with DLedgerClient(group.servers, "g") as client:
        await client.change_membership(ChangeKind.ADD_LEARNER, "n1")
        await client.change_membership(ChangeKind.PROMOTE, "n1")
    more = await append(group)

    group.identity = EARLIER  # the lost member returns as it was
    group.start("n2")
    group.wait_until_up("n2")
    wait_for(lambda: group.identity in group.log("n2"), "n2 is told that it is a stranger")
    assert await read(group, stored | more) == stored | more
    assert group.status("n2").leader_id is None

    (trace,) = group.store_folder("n0").glob("adoption-*.json")
    written = json.loads(trace.read_text())
    assert (written["earlierIdentity"], written["earlierVoters"]) == (EARLIER, ["n0", "n1", "n2"])
    assert written["endIndex"] >= max(stored)


async def test_nothing_is_adopted_while_the_member_runs_or_another_answers(
    group: Survivors,
) -> None:
    await append(group)
    running = group.adopt("n0", "--yes")
    assert (running.returncode, "is in use by process" in running.stderr) == (1, True)
    kill_all(group)
    before = files_of(group, "n0")

    group.start("n1")
    group.wait_until_up("n1")
    answered = group.adopt("n0", "--yes")
    assert (answered.returncode, "answers as n1 of the group g" in answered.stderr) == (1, True)

    group.freeze("n1")
    hung = group.adopt("n0", "--yes")
    assert (hung.returncode, "gives no answer" in hung.stderr) == (1, True)
    assert files_of(group, "n0") == before


async def test_without_consent_the_command_only_says_what_may_be_lost(group: Survivors) -> None:
    await append(group)
    kill_all(group)
    before = files_of(group, "n0")

    asked = group.adopt("n0")

    assert asked.returncode == 1
    assert "What may be lost: every entry after" in asked.stdout
    assert "pass --yes" in asked.stderr
    assert files_of(group, "n0") == before


async def test_a_damaged_survivor_is_not_adopted(group: Survivors) -> None:
    await append(group)
    for member in group.running():
        group.stop(member)
    flip(group.store_folder("n0") / "data", 500, segment_bytes=1 << 20)
    before = files_of(group, "n0")

    refused = group.adopt("n0", "--yes")

    assert (refused.returncode, "is damaged" in refused.stderr) == (4, True)
    assert files_of(group, "n0") == before


async def test_a_torn_tail_is_cut_by_a_person_first(group: Survivors) -> None:
    await append(group)
    kill_all(group)
    flip(group.store_folder("n0") / "data", log_end(group, "n0") - 3, segment_bytes=1 << 20)
    before = files_of(group, "n0")

    refused = group.adopt("n0", "--yes")

    assert (refused.returncode, "repair-tail" in refused.stderr) == (1, True)
    assert files_of(group, "n0") == before


def log_end(group: NodeGroup, member: str) -> int:
    """Return the position after the last entry."""
    (segment,) = (group.store_folder(member) / "data").iterdir()
    return len(segment.read_bytes().rstrip(b"\0"))
