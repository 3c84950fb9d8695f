"""A group with a register loses no acknowledged value to crashes, retention or lost volumes."""

import asyncio
import json
import random
import re
import shutil
import time
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.commands.exits import ExitCode
from dledger_client.errors import RefusedError
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import ChangeKind
from dledger_formats.protocol.register import SET
from dledger_node.store.snapshots.snapshots import Snapshots
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

SEGMENT_BYTES = 1 << 16
SMALL = {
    "segment_size_bytes": SEGMENT_BYTES,
    "retention_bytes": 1 << 17,
    "snapshot_threshold": 100,
    "snapshots_reserved": 1,
}
pytestmark = pytest.mark.storage


def register_group(folder: Path, members: int = 3, **settings: object) -> NodeGroup:
    return NodeGroup(folder, members, state_machine="register", **{**SMALL, **settings})


def client(group: NodeGroup) -> DLedgerClient:
    # A disk that is busy for 2 s makes an outcome unknown, so the client sends again.
    servers = list((group.peers | group.addable).values())
    timing = Timing(deadline_s=60.0)
    return DLedgerClient(servers, "g", at_least_once=True, timing=timing)


async def set_all(group: NodeGroup, values: dict[int, int]) -> None:
    async with client(group) as writing:
        async for outcome in writing.append_all([SET.pack(*item) for item in values.items()]):
            assert isinstance(outcome, Acknowledged)


async def read_all(group: NodeGroup, keys: list[int]) -> dict[int, int | None]:
    async with client(group) as reading:
        found = await asyncio.gather(*(reading.read_register(key) for key in keys))
    return dict(zip(keys, found, strict=True))


async def let_lead(group: NodeGroup, member: str) -> None:
    """Transfer the leadership as soon as the leader knows that the member has joined."""
    async with client(group) as asking, asyncio.timeout(30):
        while True:
            try:
                await asking.transfer(member)
            except RefusedError as error:
                if error.code is not DLedgerResponseCode.FALL_BEHIND_TOO_MUCH:
                    raise
                await asyncio.sleep(0.05)
            else:
                return


def metric(group: NodeGroup, member: str, name: str) -> int:
    found = re.search(
        rb"\ndledger_node_%b ([-0-9]+)" % name.encode(), group.get(member, "/metrics")[1]
    )
    assert found is not None
    return int(found[1])


def wait_for_metric(group: NodeGroup, member: str, name: str, least: int) -> None:
    wait_for(lambda: metric(group, member, name) >= least, f"{member}: {name} is {least} or more")


async def test_a_value_is_read_as_soon_as_it_is_acknowledged(tmp_path: Path) -> None:
    with register_group(tmp_path) as group:
        async with client(group) as both:
            assert await both.read_register(1) is None
            for value in range(100):
                await both.set_register(1, value)
                assert await both.read_register(1) == value
            await both.append(b"this sets nothing")
            assert await both.read_register(1) == 99


def test_the_register_is_read_and_set_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with register_group(tmp_path, members=1) as group:
        where = ["--servers", group.peers["n0"], "--group", "g"]

        assert main(["register", "get", "-13", *where]) == ExitCode.FAILED
        assert capsys.readouterr().out == ""
        assert main(["register", "set", "-13", "31", *where]) == ExitCode.OK
        assert capsys.readouterr().out == "register -13 set to 31 by entry 1\n"
        assert main(["register", "get", "-13", *where]) == ExitCode.OK
        assert capsys.readouterr().out == "31\n"
        assert main(["register", "get", "-13", "-o", "json", *where]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out) == {"key": -13, "value": 31}
        assert main(["register", "set", "1", "2", "-o", "json", *where]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out) == {"key": 1, "value": 2, "index": 2}
        with BlockingClient(group.servers, "g") as sync:
            sync.set_register(5, -5)
            assert (sync.read_register(5), sync.read_register(6)) == (-5, None)


@pytest.mark.parametrize("given", [["get", "2147483648"], ["set", "1", "x"], ["set", "1"], []])
def test_wrong_arguments_are_a_usage_error(given: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["register", *given, "--servers", "h:1", "--group", "g"])

    assert caught.value.code == ExitCode.USAGE


async def test_a_group_without_a_register_refuses_to_read_it(group: NodeGroup) -> None:
    async with client(group) as reading:
        with pytest.raises(RefusedError) as caught:
            await reading.read_register(1)

    assert caught.value.code is DLedgerResponseCode.UNSUPPORTED
    assert not (group.store_folder("n0") / "snapshot").exists()


async def test_after_a_restart_from_a_snapshot_nothing_acknowledged_is_missing(
    tmp_path: Path,
) -> None:
    """Java DLedger 0.4 lost them: it resets its log to begin after a snapshot, and a restarted
    member then voted as an empty one.
    """
    values = {key: key * 7 for key in range(20_000)}
    with register_group(tmp_path) as group:
        await set_all(group, values)
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
            wait_for_metric(group, member, "snapshot_index", 20_000)
        for member in group.peers:
            group.kill(member)
        for member in group.peers:
            group.start(member)
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ready, "is back")

        assert await read_all(group, list(values)) == values
        assert all(group.status(member).ledger_end_index >= 20_000 for member in group.peers)


def lose_a_volume(group: NodeGroup) -> str:
    """Wait until the front of every log is removed, then kill a follower and empty its disk.

    Returns the follower's id.
    """
    master = group.master()
    lost = next(member for member in group.peers if member != master)
    for member in group.peers:
        group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
    group.kill(lost)
    shutil.rmtree(group.store_folder(lost))
    return lost


async def test_a_member_that_lost_its_volume_gets_the_state_and_can_lead(tmp_path: Path) -> None:
    values = {key: -key for key in range(20_000)}
    with register_group(tmp_path) as group:
        await set_all(group, values)
        lost = lose_a_volume(group)
        group.start(lost)
        group.wait_for_status(lost, lambda view: view.durable_index >= 20_000, "has caught up")
        assert metric(group, lost, "snapshots_installed_total") == 1
        assert group.status(lost).ledger_begin_index > 0

        await let_lead(group, lost)
        assert group.master() == lost
        assert await read_all(group, list(values)) == values


def start_and_wait_for_fetch(group: NodeGroup, member: str, least_bytes: int) -> None:
    """Start a member. Wait until it has fetched some bytes of a snapshot, or all of it."""
    folder = group.store_folder(member) / "snapshot"
    started_ns = time.time_ns()
    group.start(member)

    def has_fetched() -> bool:
        if any(folder.glob("snapshot_*")):
            return True
        try:
            written = (folder / "install_tmp" / "data").stat()
        except FileNotFoundError:
            return False
        return written.st_mtime_ns >= started_ns and written.st_size >= least_bytes

    wait_for(has_fetched, f"{member} fetches {least_bytes} bytes of a snapshot")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
async def test_a_member_that_is_killed_while_it_fetches_the_state_gets_it_in_the_end(
    tmp_path: Path, seed: int
) -> None:
    choices = random.Random(seed)
    values = {key: -key for key in range(140_000)}  # more than one chunk
    with register_group(tmp_path) as group:
        await set_all(group, values)
        lost = lose_a_volume(group)
        for _ in range(6):
            start_and_wait_for_fetch(group, lost, choices.choice([0, 1, 1 << 20, 1 << 62]))
            group.kill(lost)
        group.start(lost)
        group.wait_for_status(lost, lambda view: view.durable_index >= 140_000, "has caught up")
        wait_for_metric(group, lost, "applied_index", 140_000)

        await let_lead(group, lost)
        keys = choices.sample(sorted(values), 2000)
        assert await read_all(group, keys) == {key: values[key] for key in keys}


async def test_a_member_that_is_added_gets_the_state_before_it_votes(tmp_path: Path) -> None:
    values = {key: key * 3 for key in range(20_000)}
    with register_group(tmp_path, addable=1) as group:
        await set_all(group, values)
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
        group.start("n3")
        group.wait_until_up("n3")
        async with client(group) as changing:
            await changing.change_membership(ChangeKind.ADD_LEARNER, "n3")
            await changing.change_membership(ChangeKind.PROMOTE, "n3")
        assert metric(group, "n3", "snapshots_installed_total") == 1

        await let_lead(group, "n3")
        assert await read_all(group, list(values)) == values


async def test_a_damaged_snapshot_costs_a_member_nothing(tmp_path: Path) -> None:
    values = {key: key for key in range(5000)}
    with register_group(tmp_path, members=1, snapshots_reserved=3) as group:
        await set_all(group, values)
        wait_for_metric(group, "n0", "snapshot_index", 5000)
        await set_all(group, {5000 + key: key for key in range(200)})
        wait_for_metric(group, "n0", "snapshot_index", 5200)
        group.kill("n0")
        snapshots = Snapshots(group.store_folder("n0"), reserved=3)
        newest = snapshots.folder_of(snapshots.newest_first[0])
        raw = (newest / "data").read_bytes()
        (newest / "data").write_bytes(raw[:100] + bytes((raw[100] ^ 1,)) + raw[101:])
        group.start("n0")

        assert await read_all(group, list(values)) == values
        assert "discarding the snapshot" in group.log("n0")


def wipe_from(data: Path, pos: int) -> None:
    """Overwrite the rest of a segment with zeros."""
    start = pos - pos % SEGMENT_BYTES
    with (data / disk.file_name(start)).open("r+b") as file:
        file.seek(pos - start)
        file.write(bytes(start + SEGMENT_BYTES - pos))


async def test_a_member_whose_log_is_healed_keeps_a_state_that_fits_the_log(tmp_path: Path) -> None:
    values = {key: key * 5 for key in range(20_000)}
    with register_group(tmp_path) as group:
        await set_all(group, values)
        master = group.master()
        damaged = next(member for member in group.peers if member != master)
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
        wait_for_metric(group, damaged, "snapshot_index", 20_000)
        group.kill(damaged)
        # The snapshot includes entries that the log no longer holds once it is cut at the
        # beginning of its last segment. That is never the first one, whatever retention removed.
        # No sound entry follows the damage, so it cannot be mended in place.
        wipe_from(group.store_folder(damaged) / "data", pos_of(group, damaged, 19_950))
        group.start(damaged)
        group.wait_for_status(damaged, lambda view: view.durable_index >= 20_000, "is healed")
        wait_for_metric(group, damaged, "applied_index", 20_000)
        assert "kept the log up to entry 19889" in group.log(damaged)

        await let_lead(group, damaged)
        assert await read_all(group, list(values)) == values


async def test_a_member_whose_snapshots_are_all_damaged_heals_and_can_lead(
    tmp_path: Path,
) -> None:
    """Its log is sound but begins after the snapshots, so it needs snapshot and log."""
    values = {key: key * 5 for key in range(20_000)}
    with register_group(tmp_path) as group:
        await set_all(group, values)
        hurt = min(set(group.peers) - {group.master()})
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
        group.kill(hurt)
        for path in (group.store_folder(hurt) / "snapshot").glob("snapshot_*/data"):
            path.write_bytes(path.read_bytes()[:-1])
        group.start(hurt)
        group.wait_for_status(hurt, lambda view: view.ready and not view.joining, "is whole again")
        wait_for_metric(group, hurt, "applied_index", 20_000)
        assert metric(group, hurt, "snapshots_installed_total") == 1
        wait_for(
            lambda: not list(group.store_folder(hurt).glob("damaged-*")),
            "the files that were set aside are removed",
        )

        await let_lead(group, hurt)
        assert group.master() == hurt
        assert await read_all(group, list(values)) == values


async def test_where_two_members_lost_their_snapshots_both_keep_their_logs(tmp_path: Path) -> None:
    """Neither must join: some entries may be on these two alone."""
    values = {key: key for key in range(20_000)}
    with register_group(tmp_path) as group:
        await set_all(group, values)
        for member in group.peers:
            group.wait_for_status(member, lambda view: view.ledger_begin_index > 0, "removed some")
        hurt = ["n0", "n1"]
        for member in group.peers:
            group.kill(member)
        before = {member: data_files(group, member) for member in hurt}
        for member in hurt:
            for path in (group.store_folder(member) / "snapshot").glob("snapshot_*/data"):
                path.write_bytes(b"rot")
        for member in group.peers:
            group.start(member)
        for member in hurt:
            group.wait_for_status(member, lambda view: "Not repaired" in view.reason, "says why")

        for member in hurt:
            assert not list(group.store_folder(member).glob("damaged-*"))
            after = data_files(group, member)
            assert after, "at most its front is gone, whose removal the kill had interrupted"
            assert after == before[member][-len(after) :]


def data_files(group: NodeGroup, member: str) -> list[Path]:
    return sorted((group.store_folder(member) / "data").iterdir())


def pos_of(group: NodeGroup, member: str, index: int) -> int:
    """Return the position of an entry in the data files of a stopped member."""
    files = sorted((group.store_folder(member) / "index").iterdir())
    start = int(files[0].name)
    raw = b"".join(path.read_bytes() for path in files)
    return disk.unpack_index_unit(raw, index * disk.INDEX_UNIT_SIZE - start).pos


async def test_a_member_that_cannot_restore_its_state_stays_out_and_gives_the_reason(
    tmp_path: Path,
) -> None:
    with register_group(tmp_path, members=1) as group:
        await set_all(group, {key: key for key in range(20_000)})
        group.wait_for_status("n0", lambda view: view.ledger_begin_index > 0, "removed some")
        group.kill("n0")
        shutil.rmtree(group.store_folder("n0") / "snapshot")
        group.start("n0")
        group.wait_for_status("n0", lambda view: "no snapshot" in view.reason, "says why")

        assert not group.status("n0").ready


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
async def test_kills_at_any_moment_cost_no_acknowledged_value(tmp_path: Path, seed: int) -> None:
    choices = random.Random(seed)
    with register_group(tmp_path, members=1, snapshot_threshold=1) as group:
        acknowledged: dict[int, int] = {}
        for life in range(4):
            async with client(group) as writing:
                first = life * 100_000
                limit = choices.randrange(1000, 12_000)
                bodies = [SET.pack(key, ~key) for key in range(first, first + limit)]
                async for outcome in writing.append_all(bodies):
                    assert isinstance(outcome, Acknowledged)
                    acknowledged[first + outcome.number] = ~(first + outcome.number)
            # A snapshot is due every second, so that some kills interrupt one.
            enough = metric(group, "n0", "snapshot_index") + choices.randrange(2)
            wait_for_metric(group, "n0", "snapshot_index", enough if life else -1)
            group.kill("n0")
            group.start("n0")
        keys = choices.sample(sorted(acknowledged), 2000)
        assert await read_all(group, keys) == {key: acknowledged[key] for key in keys}
