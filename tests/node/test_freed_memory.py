"""Entries of the largest size cost the kernel few page faults, once memory was used for one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_group.damaged import wait_until_level
from tools.groups.node_group import NodeGroup

COUNT = 10
FAULTS_MAX = 1500
"""Page faults of one request. Without kept memory, an append takes 2,200 and more."""
MINFLT = 9
"""The field of /proc/PID/stat, from 0."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """A group that a busy machine does not depose."""
    with NodeGroup(
        tmp_path_factory.mktemp("group"),
        heartbeat_interval_ms=250,
        election_timeout_ms=4000,
        segment_size_bytes=64 << 20,
    ) as running:
        yield running


def page_faults(group: NodeGroup, member: str) -> int:
    """Return the page faults of a member since its start that needed no disk."""
    stat = Path(f"/proc/{group.process_id(member)}/stat").read_text()
    return int(stat.split()[MINFLT])


def test_appends_and_reads_of_the_largest_entries_use_the_memory_of_earlier_ones(
    group: NodeGroup,
) -> None:
    leader = group.master()
    with BlockingClient(group.servers, "g") as client:

        def append() -> int:
            return client.append(os.urandom(disk.BODY_SIZE_MAX)).index

        largest = [append() for _ in range(3)][-1]
        for _ in range(3):
            client.get(largest)
        wait_until_level(group)
        before = {member: page_faults(group, member) for member in group.peers}

        for _ in range(COUNT):
            append()
        wait_until_level(group)
        after_appends = {member: page_faults(group, member) for member in group.peers}
        for _ in range(COUNT):
            client.get(largest)

    for member in group.peers:
        assert (after_appends[member] - before[member]) / COUNT <= FAULTS_MAX, member
    assert (page_faults(group, leader) - after_appends[leader]) / COUNT <= FAULTS_MAX
