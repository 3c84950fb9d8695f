"""The strangers of the soak do what they are there for."""

import asyncio
from pathlib import Path

import pytest

from bench.soak import strangers
from bench.soak.strangers import PATHS, Target, Unread, unread
from dledger_group.damaged import append_all
from tools.groups.node_group import NodeGroup


@pytest.mark.group
async def test_connections_that_read_nothing_stay_open_at_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They once sent four requests at once, and the member closed them before any answer."""
    monkeypatch.setattr(strangers, "KEEP_S", 2.0)
    counts = Unread()
    with NodeGroup(tmp_path, members=1, segment_size_bytes=1 << 20) as group:
        await append_all(group, [bytes(100_000)] * 15)
        host, port = group.peers["n0"].split(":")
        target = Target("n0", host, int(port), group.http_ports["n0"])

        await asyncio.gather(*(unread(target, counts) for _ in range(4 * len(PATHS))))

    assert (counts.opened, counts.kept) == (16, 16)
