"""Retention of a running group: everybody removes, and nobody what another lacks."""

import os
import re
import time
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_formats.settings import NodeSettings
from dledger_node.volume.upkeep import held_by_all, policy_of, volume_used_percent
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.storage


async def append_all(group: NodeGroup, bodies: list[bytes]) -> None:
    # A disk that is busy for 2 s makes an outcome unknown; it is sent again.
    async with DLedgerClient(servers=group.servers, group="g", at_least_once=True) as client:
        async for outcome in client.append_all(bodies):
            assert isinstance(outcome, Acknowledged)


def wait_for_few_segments(data: Path) -> None:
    # The files go when the log's new beginning is durable, so a moment after it shows.
    wait_for(lambda: len(list(data.iterdir())) <= 3, "the removed segments' files are gone")


async def test_every_member_keeps_so_many_bytes_and_no_member_what_another_lacks(
    tmp_path: Path,
) -> None:
    with NodeGroup(tmp_path, retention_bytes=2 << 20) as group:
        master = group.master()
        away = next(member for member in group.running() if member != master)
        group.wait_for_status(away, lambda view: view.leader_id == master, "follows")
        group.kill(away)
        await append_all(group, [bytes(10_000)] * 600)
        # Six segments. A member that is away keeps them all where they are.
        checked_s = time.monotonic() + 2.5
        wait_for(lambda: time.monotonic() > checked_s, "two rounds of upkeep")
        assert {group.status(member).ledger_begin_index for member in group.running()} == {0}

        group.start(away)
        for member in group.peers:
            group.wait_for_status(
                member, lambda view: view.ledger_begin_index > 400, "has removed the oldest"
            )
            wait_for_few_segments(group.store_folder(member) / "data")
        await append_all(group, [b"the log goes on"] * 10)
        metrics = group.get(away, "/metrics")[1]
        removed = re.search(rb"dledger_node_segments_removed_total (\d+)", metrics)
        assert removed is not None
        assert int(removed[1]) >= 4
        assert b"dledger_node_segments_forced_total 0.0" in metrics

        group.kill(away)
        group.start(away)
        group.wait_for_status(away, lambda view: view.ready, "is back with a log without its front")


def test_what_all_hold_is_what_the_slowest_holds() -> None:
    assert held_by_all({"n1": 7, "n2": 9}, 8) == 7
    assert held_by_all({"n1": 7, "n2": -1}, 8) == -1
    assert held_by_all({}, 8) == 8


def test_by_default_nothing_is_ever_removed() -> None:
    settings = NodeSettings(group="g", self_id="n0", peers={"n0": "h:1"}, store_base_dir="s")

    assert policy_of(settings).keeps_everything
    assert policy_of(settings).delete_hours == (4,)


def test_the_use_of_a_volume_is_that_of_df(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    used = found.f_blocks - found.f_bfree

    assert volume_used_percent(tmp_path) == pytest.approx(
        100 * used / (used + found.f_bavail), abs=1.5
    )
