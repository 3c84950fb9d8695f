"""Retention in a running group: each member removes segments, but none that another lacks."""

import os
import re
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.http.retention import RemovalRule
from dledger_formats.http.served_files import SNAPSHOT_META, snapshot_file
from dledger_formats.settings import NodeSettings
from dledger_node.store.small_files.checkpoint import load_checkpoint
from dledger_node.volume.upkeep import held_by_all, policy_of, volume_usage
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storage


async def append_all(group: NodeGroup, bodies: list[bytes]) -> None:
    # If a disk is busy for 2 s the outcome is unknown, and the client retries.
    async with DLedgerClient(servers=group.servers, group="g", at_least_once=True) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged)


def wait_for_few_segments(data: Path) -> None:
    # The files are deleted a moment after the status shows the log's new beginning.
    wait_for(lambda: len(list(data.iterdir())) <= 3, "the removed segments' files are deleted")


async def wait_for_a_round_of_upkeep(group: NodeGroup) -> None:
    """Wait until each running member has run upkeep with all entries committed.

    A round saves the checkpoint first and removes segments later. So a member that saves a second
    checkpoint has finished the round of the first one.
    """
    for _ in range(2):
        await append_all(group, [b"another entry"])
        committed_index = group.status(group.master()).committed_index
        for member in group.running():
            wait_for(
                lambda m=member, index=committed_index: checkpointed_index(group, m) >= index,
                f"{member} has saved a checkpoint at entry {committed_index}",
            )


def checkpointed_index(group: NodeGroup, member: str) -> int:
    checkpoint = load_checkpoint(group.store_folder(member))
    return checkpoint.committed_index if checkpoint is not None else -1


async def test_no_member_removes_entries_that_another_member_lacks(
    tmp_path: Path,
) -> None:
    with NodeGroup(tmp_path, retention_bytes=2 << 20) as group:
        master = group.master()
        away = next(member for member in group.running() if member != master)
        group.wait_for_status(away, lambda view: view.leader_id == master, "follows")
        group.kill(away)
        await append_all(group, [bytes(10_000)] * 600)
        # Six segments, which all stay because the member that is away lacks them.
        await wait_for_a_round_of_upkeep(group)
        assert {group.status(member).ledger_begin_index for member in group.running()} == {0}

        group.start(away)
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_begin_index > 400, "removes the oldest segments"
            )
            wait_for_few_segments(group.store_folder(member) / "data")
        await append_all(group, [b"more entries"] * 10)
        metrics = group.get(away, "/metrics")[1]
        removed = re.search(rb"dledger_node_segments_removed_total (\d+)", metrics)
        assert removed is not None
        assert int(removed[1]) >= 4
        assert b"dledger_node_segments_forced_total 0.0" in metrics

        group.kill(away)
        group.start(away)
        group.wait_for_status(
            away, lambda view: view.ready, "restarts with a log without its front"
        )


async def test_the_manifest_tells_why_the_front_was_removed_and_what_is_next(
    tmp_path: Path,
) -> None:
    with NodeGroup(
        tmp_path, retention_bytes=3 << 20, state_machine="register", snapshot_threshold=100
    ) as group:
        await append_all(group, [bytes(10_000)] * 900)
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_begin_index > 0, "removes the oldest segments"
            )
        reported = {member: group.manifest(member) for member in group.peers}
        (one, *_), state = group.peers, reported[next(iter(group.peers))].retention
        assert state is not None
        newest = snapshot_file(state.snapshots[-1].last_included_index, SNAPSHOT_META)
        for name in ("currterm", "checkpoint", "removals", newest):
            file = group.store_folder(one) / name
            wait_for(  # a round of upkeep may write it between the two reads
                lambda name=name, file=file: (  # type: ignore[misc]
                    group.get(one, f"/files/{name}") == (200, file.read_bytes())
                ),
                f"{name} is served as it is",
            )

    for said in reported.values():
        state, begin_index = said.retention, said.status.ledger_begin_index
        assert state is not None
        assert state.policy.bytes_max == 3 << 20
        assert state.log_bytes >= 2 << 20
        assert state.removals[0].first_index == 0
        assert state.removals[-1].last_index == begin_index - 1
        for removal in state.removals:
            assert removal.rule is RemovalRule.SIZE
            assert not removal.is_forced
            assert removal.covered_index is not None
            assert removal.last_index < removal.committed_index <= state.committed_index
            assert removal.last_index <= removal.covered_index
            assert removal.last_index <= removal.held_by_all_index <= state.held_by_all_index
            assert 0 < removal.removed_at_ms <= state.now_ms
        assert state.covered_index is not None
        assert begin_index <= state.covered_index + 1 <= state.applied_index + 1
        assert state.covered_index <= state.snapshots[0].last_included_index
        assert state.applied_index <= said.status.committed_index
        assert all(0 < file.modified_ms <= state.now_ms + 1000 for file in said.data)


def test_the_index_held_by_all_is_that_of_the_slowest_member() -> None:
    assert held_by_all({"n1": 7, "n2": 9}, 8) == 7
    assert held_by_all({"n1": 7, "n2": -1}, 8) == -1
    assert held_by_all({}, 8) == 8


def test_nothing_is_removed_by_default() -> None:
    settings = NodeSettings(group="g", self_id="n0", peers={"n0": "h:1"}, store_base_dir="s")

    assert policy_of(settings).keeps_everything
    assert policy_of(settings).delete_hours == (4,)


def test_the_volume_usage_equals_that_of_df(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    used = found.f_blocks - found.f_bfree

    assert volume_usage(tmp_path).used_percent == pytest.approx(
        100 * used / (used + found.f_bavail), abs=1.5
    )
