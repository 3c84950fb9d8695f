"""Real members of a new group that begin with an archive, by `dledger-node seed`."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.protocol import register
from dledger_formats.settings import ARCHIVE
from dledger_logs.write import Entry, Shape, write_log
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

VALUES = [(number * 7 % 20, number) for number in range(600)]
SHAPE = Shape(segment_bytes=16384, index_segment_bytes=3200)


def archive_in(folder: Path) -> Path:
    entries = [Entry(term=3, body=b"", magic=disk.NOOP)]
    entries += [Entry(term=7, body=register.SET.pack(key, value)) for key, value in VALUES]
    made = compacted(
        copies_of({"n0": write_log(folder / "source", entries, SHAPE)}), folder / "archive",
        "register",
    )  # fmt: skip
    assert made is not None
    assert made.info.dead_entries > 20
    return made.path


@pytest.fixture
def group(tmp_path: Path) -> Iterator[NodeGroup]:
    """A new group whose members are not started yet."""
    made = NodeGroup(
        tmp_path / "group", 3, segment_size_bytes=SHAPE.segment_bytes, state_machine="register",
        index_segment_size_bytes=SHAPE.index_segment_bytes, group_identity="new",
        first_log=ARCHIVE,
    )  # fmt: skip
    made.folder.mkdir()
    with contextlib.ExitStack() as stack:
        stack.push(made.__exit__)
        yield made


def seed(group: NodeGroup, member: str, archive: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dledger_node", "seed", str(archive)],
        env=group.settings(member).to_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def start(group: NodeGroup, *members: str) -> None:
    for member in members:
        group.start(member)
    for member in members:
        group.wait_until_up(member)


async def registers(group: NodeGroup) -> dict[int, int | None]:
    async with DLedgerClient(group.servers, group="g") as client:
        return {key: await client.read_register(key) for key in dict(VALUES)}


async def test_a_group_begins_with_the_archive_once_all_first_voters_have_it(
    tmp_path: Path, group: NodeGroup
) -> None:
    archive = archive_in(tmp_path)
    for member in ("n0", "n1"):
        assert "begins with entries 0 to 600 of the group g" in seed(group, member, archive)
    start(group, "n0", "n1")
    for member in ("n0", "n1"):
        group.wait_for_status(
            member,
            lambda view: view.reason.startswith("joining: waits for n2"),
            "waits for the third first voter",
        )
    assert "begins with entries 0 to 600" in seed(group, "n2", archive)
    start(group, "n2")
    master = group.master()

    assert await registers(group) == dict(VALUES)
    assert group.status(master).term > 7
    assert group.status(master).group_identity == "new"
    async with DLedgerClient(group.servers, group="g") as client:
        await client.set_register(100, 1)
    # The operator was away, so the settings still call the group new.
    lost = min(set(group.peers) - {master})
    group.kill(lost)
    shutil.rmtree(group.store_folder(lost))
    assert "says that" in (told := seed(group, lost, archive)), told
    assert not group.store_folder(lost).exists()
    start(group, lost)
    group.wait_for_status(lost, lambda view: not view.joining, "votes")
    assert group.status(lost).joined_index > 600
    group.kill(group.master())
    group.master()
    assert await registers(group) == dict(VALUES)


async def test_a_group_never_begins_with_a_first_voter_that_is_empty(
    tmp_path: Path, group: NodeGroup
) -> None:
    archive = archive_in(tmp_path)
    for member in ("n0", "n1"):
        seed(group, member, archive)
    start(group, "n0", "n1", "n2")
    group.wait_for_status(
        "n0", lambda view: "n2 has another log, or none" in view.reason, "says what it waits for"
    )
    waits = "waits for a leader, or for the archive that the group is to begin with"
    group.wait_for_status("n2", lambda view: waits in view.reason, "says what it waits for")
    assert all(group.status(member).leader_id is None for member in group.peers)
    group.kill("n2")
    assert "begins with entries" in seed(group, "n2", archive)
    start(group, "n2")
    group.master()

    assert await registers(group) == dict(VALUES)
